from __future__ import annotations

from tests.cli.conftest import own, tiny
from tests.encode.stub import stub

__all__ = ["own", "stub", "tiny"]
