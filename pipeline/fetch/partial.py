"""A file that is being fetched, and what is known of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx

from pipeline.core import files

STATE = ".state-*.json"
"""What is noted beside each file while a release is being fetched."""


class Partial:
    """What is known of a file that is being fetched: ``.partial-NAME`` and, beside it, ``.state-NAME.json``."""

    def __init__(self, path: Path) -> None:
        self.partial = path.with_name(f".partial-{path.name}")
        self._json = path.with_name(STATE.replace("*", path.name))
        self._known = json.loads(self._json.read_text()) if self._json.is_file() else {}

    @property
    def size(self) -> int:
        """Bytes that have come."""
        return self.partial.stat().st_size if self.partial.is_file() else 0

    @property
    def etag(self) -> str | None:
        """What the server called the version they are of."""
        etag: str | None = self._known.get("etag")
        return etag

    @property
    def total(self) -> int | None:
        """Bytes of the whole file, None where the server did not say."""
        total: int | None = self._known.get("total")
        return total

    @property
    def md5(self) -> str | None:
        """The MD5 that the server's ETag is, where it is one (of an upload in one piece, not encrypted by a key)."""
        tag = (self.etag or "").strip('"')
        return tag if re.fullmatch(r"[0-9a-f]{32}", tag) and self._known.get("plain") else None

    def begin(self, answer: httpx.Response) -> None:
        """Note what the server says of the file that it begins, or goes on, to send."""
        total = answer.headers.get("Content-Range", "").rpartition("/")[2] or answer.headers.get("Content-Length", "")
        etag = answer.headers.get("ETag", "")
        self._known = {
            "etag": etag if etag.startswith('"') else None,
            "total": int(total) if total.isdecimal() else None,
            "plain": "kms" not in answer.headers.get("x-amz-server-side-encryption", ""),
        }
        files.write_text(self._json, json.dumps(self._known))

    def forget(self) -> None:
        """Remove what was fetched so far."""
        self._known = {}
        self.partial.unlink(missing_ok=True)
        self._json.unlink(missing_ok=True)

    def finish(self, checked: dict[str, object]) -> None:
        """Note that the file is whole, and what was checked of it."""
        files.write_text(self._json, json.dumps({"checked": checked}))
        self._known = {"checked": checked}

    @property
    def checked(self) -> dict[str, object]:
        """What was checked of the file when it was whole; empty before."""
        checked: dict[str, object] = self._known.get("checked", {})
        return checked
