from __future__ import annotations

import pytest

from tests.faults.tally import Tally


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Return what counts the faults of a test, under the name of its module."""
    kind = request.path.stem.removeprefix("test_")
    return Tally(lambda name, value: request.node.user_properties.append((name, value)), kind)
