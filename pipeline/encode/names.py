"""The grammar of names: what systems and encoders are called, by users and in tables.

.. code-block:: none

    names   = [ name { "," name } ]
    name    = [ label "=" ] ( base | word "(" names ")" ) [ ":" option { "," option } ]
    option  = key "=" value

A base is any other text: ``scincl``, ``hf:org/name``, ``bm25:tuned``, ``run:FILE``, a path. Only a text with a slash is
a path, so no name depends on what a folder holds; the path of a folder is a base, whatever its characters. After a name
with options, ``word=text`` is a further option, unless the text is a system or holds a colon or a slash: then ``word``
is the label of the next system. A setting that names a file (:class:`pipeline.encode.model.Model`) is always an
option.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.core.door import require
from pipeline.core.errors import InputError, require_known
from pipeline.encode import hub, kinds

HUB, VECTORS, CROSS, MAXSIM, RUN = "hf:", "vectors:", "cross:", "maxsim:", "run:"
"""Prefixes of bases that are neither entries nor folders."""

RERANKERS = (CROSS, MAXSIM)
"""Prefixes of rerankers: a cross-encoder, a multi-vector encoder."""

BASELINES = ("most-cited", "newest", "random")
"""Systems that read no text."""


@dataclass(frozen=True)
class Name:
    """A system or an encoder, as it is called.

    Attributes:
        base: an entry, a path, ``hf:org/name``, or the word before the parentheses.
        parts: the names in the parentheses; None without parentheses.
        options: key and value of each option, in the order typed.
        label: the user's own name for it, or empty.
        index: the approximate index that searches it; empty for exact search. Users give it as ``--engine``.
    """

    base: str
    parts: tuple[Name, ...] | None = None
    options: tuple[tuple[str, str], ...] = ()
    label: str = ""
    index: str = ""

    def __str__(self) -> str:
        """Return the name as users type it, which :func:`parse` reads."""
        return (f"{self.label}=" if self.label else "") + self._text(str)

    @property
    def title(self) -> str:
        """The name in tables: the label, else as users type it, with the titles of its parts."""
        return (self.label or self._text(lambda part: part.title)) + (f"@{self.index}" if self.index else "")

    def _text(self, show: Callable[[Name], str]) -> str:
        inner = "" if self.parts is None else f"({','.join(map(show, self.parts))})"
        options = ",".join(f"{key}={value}" for key, value in self.options)
        return f"{self.base}{inner}{':' if options else ''}{options}"

    def walk(self) -> Iterator[Name]:
        """Yield the name and all names inside."""
        yield self
        for part in self.parts or ():
            yield from part.walk()

    def map(self, change: Callable[[Name], Name]) -> Name:
        """Return the name with each part changed, and then changed itself."""
        parts = None if self.parts is None else tuple(part.map(change) for part in self.parts)
        return change(replace(self, parts=parts))

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Name:
        """Return the name that :func:`pipeline.core.config.canonical` made plain data of."""
        parts = None if data["parts"] is None else tuple(map(cls.of, data["parts"]))
        return cls(**{**data, "parts": parts, "options": tuple(map(tuple, data["options"]))})


def parse(text: str, *, single: bool = False) -> list[Name]:
    """Return names separated by commas; with ``single``, everything after the first option is options."""
    names = list[Name]()
    for piece in _pieces(text):
        option = _option(piece, single) if names and names[-1].options else None
        if option is None:
            names.append(_name(piece))
        else:
            names[-1] = replace(names[-1], options=(*names[-1].options, option))
    return names


def split_names(text: str) -> list[str]:
    """Return each name in a text as typed."""
    return list(map(str, parse(text)))


def walk(text: str) -> Iterator[Name]:
    """Yield the names in a text and all names inside them."""
    return (inner for name in parse(text) for inner in name.walk())


def parse_one(text: str) -> Name:
    """Return a single name, whose first option is followed by options; raise InputError at several names."""
    name, *further_names = parse(text, single=True) or [Name("")]
    if further_names:
        raise InputError(f"{text!r} must be one name, got several", "Write options like scincl:compute=bfloat16")
    return name


def is_name(text: str) -> bool:
    """Return whether a text is a system without options and label: an entry, a folder, or a word with parentheses."""
    return re.match(r"\w+\(", text) is not None or text in known_names() or hub.is_folder(text)


def display_name(name: Name) -> Name:
    """Return a name as tables show it: paths are cut to their last part, or to two if the last is a known name."""
    return name.map(_shorten_paths)


def display_names(text: str) -> str:
    """Return names as tables show them (:func:`display_name`)."""
    return ",".join(str(display_name(name)) for name in parse(text))


def known_names() -> set[str]:
    """Return the names of all entries, ``bm25`` and :data:`BASELINES`."""
    return {*entries(), "bm25", *BASELINES}


_REGISTERED: dict[str, Mapping[str, Any]] = {}


def register(name: str, **entry: Any) -> None:
    """Register an encoder under a name; the keys are those of an entry, described at the head of ``models.toml``.

    Raises:
        InputError: the name is taken or cannot be typed, or ``like`` names no entry.
    """
    existing = entries()
    if "like" in entry:
        require(entry["like"], str, "like")
    if not re.fullmatch(r"\w[\w.-]*", name) or name in known_names() - _REGISTERED.keys():
        raise InputError(f"an encoder cannot be called {name!r}", "Give a word that is not a system yet")
    if (like := entry.pop("like", None)) is not None:
        require_known(like, existing, f"there is no encoder {like!r}")
    _REGISTERED[name] = {**existing.get(like, {}), **entry}


def entries() -> dict[str, Mapping[str, Any]]:
    """Return the entries of ``models.toml`` and of the registered kinds, by name."""
    table = dict(_file()) | _REGISTERED
    for kind in kinds.KINDS.values():
        table |= {name: {"kind": kind.kind, **entry} for name, entry in kind.entries.items()}
    return table


@functools.cache
def _file() -> dict[str, Mapping[str, Any]]:
    table = tomllib.loads(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))
    for name, entry in table.items():
        table[name] = table[entry.pop("like")] | entry if "like" in entry else entry
    return table


def _depths(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield the position and the character of a text, and the number of parentheses that are open after it."""
    depths = itertools.accumulate((character == "(") - (character == ")") for character in text)
    return zip(itertools.count(), text, depths, strict=False)


def _pieces(text: str) -> Iterator[str]:
    """Yield each piece between commas outside parentheses, stripped."""
    commas = (position for position, character, depth in _depths(text) if character == "," and depth == 0)
    for before, end in itertools.pairwise((-1, *commas, len(text))):
        if piece := text[before + 1 : end].strip():
            yield piece


def _name(piece: str) -> Name:
    labelled = re.fullmatch(r"([A-Za-z][\w.+-]*)\s*=\s*(.+)", piece)
    label, text = ("", piece) if labelled is None or hub.is_folder(piece) else labelled.groups()
    if text.startswith(RUN) or hub.is_folder(text):
        return Name(text, label=label)
    end = _end_of_parts(text)
    option = re.fullmatch(r"(.*?):(\w+)\s*=(.*)", text[end:])
    remainder = option[1] if option else text[end:]
    options = ((option[2], option[3].strip()),) if option else ()
    if end and not remainder:
        word, _, inner = text[: end - 1].partition("(")
        return Name(word, tuple(parse(inner)), options, label)
    return Name(text[:end] + remainder, None, options, label)


def _end_of_parts(text: str) -> int:
    """Return the end of the parentheses after the first word, 0 without any."""
    call = text if re.match(r"\w+\(", text) else ""
    return next((position + 1 for position, character, depth in _depths(call) if character == ")" and depth == 0), 0)


def _option(piece: str, is_option: bool) -> tuple[str, str] | None:
    """Return key and value of a further option; None if the piece is a system, unless ``is_option``."""
    match = re.fullmatch(r"(\w+)\s*=(.*)", piece)
    if match is None:
        return None
    key, value = match[1], match[2].strip()
    is_option = is_option or any(key in kind.locators for kind in kinds.KINDS.values())
    return (key, value) if is_option or not (re.search("[:/]", value) or is_name(value)) else None


def _shorten_paths(name: Name) -> Name:
    prefix = next(prefix for prefix in (VECTORS, *RERANKERS, HUB, "") if name.base.startswith(prefix))
    path = name.base.removeprefix(prefix)
    is_path = prefix == VECTORS or (prefix == "" and "/" in path) or (prefix != HUB and _is_path(path))
    options = tuple((key, _last_folder(value) if _is_path(value) else value) for key, value in name.options)
    return replace(name, base=prefix + _last_folder(path) if is_path else name.base, options=options)


def _is_path(text: str) -> bool:
    if text in known_names():
        return False
    return text.startswith(("/", "~", "./", "../")) or text in (".", "..") or hub.is_folder(text)


def _last_folder(location: str) -> str:
    parts = Path(os.path.abspath(Path(location).expanduser())).parts[-2:]
    return "/".join(parts) if parts[-1] in known_names() else parts[-1]
