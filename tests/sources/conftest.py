from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from pipeline.sources.remote import client


@pytest.fixture
def session() -> Iterator[httpx.Client]:
    with client() as opened:
        yield opened
