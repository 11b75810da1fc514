"""A file while it is fetched: ``.partial-NAME``, and beside it ``.state-NAME.json`` with what the server said."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx
import msgspec

from pipeline.core import files

STATE = ".state-*.json"


@dataclass(frozen=True)
class State:
    """What is known of a file.

    Attributes:
        etag: the server's name for this version of the file.
        total: bytes of the whole file, None if the server did not say.
        md5: 32 hex digits if the ETag is an MD5 (of an upload in one piece, not encrypted by a key).
        checked: what was checked once the file was complete; empty before.
    """

    etag: str | None = None
    total: int | None = None
    md5: str | None = None
    checked: dict[str, object] = field(default_factory=dict)


class Partial:
    """The part of a file that has arrived, and its state."""

    def __init__(self, path: Path) -> None:
        self.partial = path.with_name(f".partial-{path.name}")
        self._json = path.with_name(STATE.replace("*", path.name))
        self.state = self._read()

    def _read(self) -> State:
        """Return the state on disk; one that cannot be read says nothing."""
        try:
            return msgspec.json.decode(self._json.read_bytes(), type=State)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return State()

    @property
    def size(self) -> int:
        """Bytes that have arrived."""
        return self.partial.stat().st_size if self.partial.is_file() else 0

    def begin(self, answer: httpx.Response) -> None:
        """Note what the server says of the file it starts or continues to send."""
        total = answer.headers.get("Content-Range", "").rpartition("/")[2] or answer.headers.get("Content-Length", "")
        tag = answer.headers.get("ETag", "")
        plain = "kms" not in answer.headers.get("x-amz-server-side-encryption", "")
        digits = re.fullmatch(r'"([0-9a-f]{32})"', tag)
        self._note(
            State(
                etag=tag if tag.startswith('"') else None,
                total=int(total) if total.isdecimal() else None,
                md5=digits[1] if digits and plain else None,
            )
        )

    def forget(self) -> None:
        """Remove what has arrived."""
        self.state = State()
        self.partial.unlink(missing_ok=True)
        self._json.unlink(missing_ok=True)

    def finish(self, checked: dict[str, object]) -> None:
        """Note that the file is complete, and what was checked."""
        self._note(State(checked=checked))

    def _note(self, state: State) -> None:
        files.write_text(self._json, json.dumps(asdict(state)))
        self.state = state
