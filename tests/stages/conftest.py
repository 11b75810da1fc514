from __future__ import annotations

from tests.cli.conftest import root, tiny

__all__ = ["root", "tiny"]
