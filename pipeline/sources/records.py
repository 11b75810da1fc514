"""Typed records from JSON lines, and the counts of those that cannot be read: each bad line is dropped by reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pipeline.sources.base import MAX_TEXT
from pipeline.sources.lines import read_lines

EXAMPLES = 3
"""Bad records shown of each reason in each part."""

_T = TypeVar("_T")


class Tally:
    """Counts the records of a file.

    Args:
        path: the file, named in examples of bad records.
        max_text: characters of a text that are kept.

    Attributes:
        read: records read, kept or not.
        dropped: records that are not kept, by reason.
        noted: other things worth counting, by name.
        examples: the first bad records of each reason, each as ``reason: file:line: excerpt``.
    """

    def __init__(self, path: Path, max_text: int = MAX_TEXT) -> None:
        self._path, self._max_text = path, max_text
        self._shown: Counter[str] = Counter()
        self._restart()

    def _restart(self) -> None:
        self.read = 0
        self.dropped: Counter[str] = Counter()
        self.noted: Counter[str] = Counter()
        self.examples: list[str] = []

    def drop(self, reason: str, line: int, excerpt: bytes | str = b"") -> None:
        """Count one record that is not kept, and show the first few of each reason."""
        self.pass_over(reason)
        self._shown[reason] += 1
        if self._shown[reason] <= EXAMPLES:
            text = excerpt[:80].decode("utf-8", "replace") if isinstance(excerpt, bytes) else excerpt[:80]
            self.examples.append(f"{reason}: {self._path.name}:{line}: {text}")

    def cut(self, text: str | None) -> str | None:
        """Return the text, cut at the length that is kept; cut texts are counted."""
        if text is None or len(text) <= self._max_text:
            return text
        self.noted["text_cut"] += 1
        return text[: self._max_text]

    def pass_over(self, reason: str) -> None:
        """Count one record that is dropped for a reason that is usual in the release; no example is shown."""
        self.read += 1
        self.dropped[reason] += 1

    def counts(self) -> dict[str, Any]:
        """Return what was counted since the last call, as arguments of a batch, and start anew."""
        counts = {"read": self.read, "dropped": self.dropped, "noted": +self.noted, "examples": self.examples}
        self._restart()
        return counts


def read_records(
    path: Path, kind: type[_T], tally: Tally, *, allow_truncated: bool = False
) -> Iterator[tuple[int, _T]]:
    """Yield (line number, record) of each line that decodes as ``kind``; the others are dropped.

    Args:
        path: JSON lines, plain or gzip.
        kind: a :class:`msgspec.Struct`, or another type that :mod:`msgspec` decodes.
        tally: counts ``line_too_long``, ``bad_utf8``, ``bad_json`` and ``wrong_type``.
        allow_truncated: keep the whole lines of a truncated gzip file.

    Raises:
        CorruptError: the file is truncated or damaged.
    """
    decode = msgspec.json.Decoder(kind).decode
    for number, line in read_lines(path, allow_truncated=allow_truncated):
        if line is None:
            tally.drop("line_too_long", number)
            continue
        try:
            yield number, decode(line)
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
            mended = _mended(line, decode, error)
            if isinstance(mended, str):
                tally.drop(mended, number, str(error) if mended == "wrong_type" else line)
            else:
                yield number, mended[0]


def _mended(line: bytes, decode: Callable[[bytes], _T], error: Exception) -> tuple[_T] | str:
    """Return the record of a line that failed to decode, with lone surrogates replaced, or the reason to drop it."""
    if isinstance(error, UnicodeDecodeError):
        return "bad_utf8"
    if isinstance(error, msgspec.ValidationError):
        return "wrong_type"
    try:
        return (decode(_replace_surrogates(line)),)
    except msgspec.ValidationError:
        return "wrong_type"
    except (ValueError, RecursionError):
        return "bad_json"


def _replace_surrogates(line: bytes) -> bytes:
    """Return a JSON line with lone surrogates replaced by U+FFFD.

    Raises:
        ValueError: the line is not JSON.
    """
    text = json.dumps(json.loads(line, parse_constant=_not_json), ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _not_json(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
