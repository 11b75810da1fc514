from __future__ import annotations

from tests.cli.conftest import own, tiny

__all__ = ["own", "tiny"]
