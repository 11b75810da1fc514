"""Lines of JSON to typed records, each bad line dropped by its reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

_Record = TypeVar("_Record")


class Drops(Protocol):
    """Whatever counts records that are not kept."""

    def drop(self, reason: str, line: int, excerpt: bytes | str = b"") -> None:
        """Count one record that is not kept."""


def decode_line(line: bytes, decode: Callable[[bytes], _Record], drops: Drops, number: int) -> _Record | None:
    """Return the record of a line; where there is none to return, the line is counted as dropped.

    Args:
        line: one line of JSON.
        decode: of a :class:`msgspec.json.Decoder`.
        drops: counts ``bad_utf8``, ``bad_json`` and ``wrong_type``.
        number: of the line.
    """
    text: bytes | None = line
    while text is not None:
        try:
            return decode(text)
        except UnicodeDecodeError:
            drops.drop("bad_utf8", number, line)
            return None
        except msgspec.ValidationError as error:
            drops.drop("wrong_type", number, str(error))
            return None
        except (msgspec.DecodeError, RecursionError):
            text = mend_surrogates(line) if text is line else None
    drops.drop("bad_json", number, line)
    return None


def mend_surrogates(line: bytes) -> bytes | None:
    """Return a JSON line with lone surrogates replaced by U+FFFD, or None where that is not what is wrong with it."""
    try:
        text = json.dumps(json.loads(line, parse_constant=_refuse), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")
