from __future__ import annotations

from tests.cli.conftest import root, tiny
from tests.encode.stub import stub

__all__ = ["root", "stub", "tiny"]
