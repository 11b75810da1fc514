from __future__ import annotations

from tests.encode.stub import stub

__all__ = ["stub"]
