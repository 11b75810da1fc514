"""The grammar of names: what systems and encoders are called, by users and in tables.

.. code-block:: none

    names   = [ name { "," name } ]
    name    = [ label "=" ] ( base | word "(" names ")" ) [ ":" option { "," option } ]
    option  = key "=" value

A base is any other text: ``scincl``, ``hf:org/name``, ``bm25:tuned``, ``run:FILE``, a path. The name of a folder is a
base, whatever it holds. After a name with options, ``word=text`` is a further option, unless the text is a system or
holds a colon or a slash: then ``word`` is the label of the next system. A setting that names a file
(:attr:`pipeline.encode.kinds.Kind.places`) is always an option.
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

from pipeline.core.errors import InputError, nearest
from pipeline.encode import kinds

HUB, MTEB, VECTORS, CROSS, MAXSIM, RUN = "hf:", "mteb:", "vectors:", "cross:", "maxsim:", "run:"
"""What a base begins with that is no entry and no folder."""

RERANKERS = (CROSS, MAXSIM)
"""What a model that reranks begins with: a cross-encoder, a multi-vector encoder."""

BASELINES = ("most-cited", "newest", "random")
"""Systems that read no text."""


@dataclass(frozen=True)
class Name:
    """A system or an encoder, as it is called.

    Attributes:
        base: an entry, a path, ``hf:org/name``, or the word before the parentheses.
        parts: what stands in the parentheses; None without any.
        options: key and value of each option, in the order typed.
        label: the user's own name for it; empty for none.
        index: the approximate index that it is searched by; empty for exact search. Users give it as ``--engine``.
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

    def _text(self, shown: Callable[[Name], str]) -> str:
        inside = "" if self.parts is None else f"({','.join(map(shown, self.parts))})"
        options = ",".join(f"{key}={value}" for key, value in self.options)
        return f"{self.base}{inside}{':' if options else ''}{options}"

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
    """Read names separated by commas; ``single``: what follows an option is options too."""
    names: list[Name] = []
    for piece in _pieces(text):
        option = _option(piece, single) if names and names[-1].options else None
        if option is None:
            names.append(_name(piece))
        else:
            names[-1] = replace(names[-1], options=(*names[-1].options, option))
    return names


def one(text: str) -> Name:
    """Read a single name: what follows its first option is options too.

    Raises:
        InputError: the text holds several names.
    """
    name, *others = parse(text, single=True) or [Name("")]
    if others:
        raise InputError(f"{text!r} must be one name, got several", "Write options like scincl:compute=bfloat16")
    return name


def is_name(text: str) -> bool:
    """Whether a text is a system without options and label: an entry, a folder, or a word with parentheses."""
    return re.match(r"\w+\(", text) is not None or text in known() or os.path.isdir(text)


def shown(name: Name) -> Name:
    """Return a name with each path in it cut to the name of its folder or file, as tables show it.

    Where that is the name of a known model, the folder around it stays too.
    """
    return name.map(_without_folders)


def known() -> set[str]:
    """Return the names of all entries, ``bm25`` and :data:`BASELINES`."""
    return {*entries(), "bm25", *BASELINES}


_REGISTERED: dict[str, Mapping[str, Any]] = {}


def register(name: str, **entry: Any) -> None:
    """Enter an encoder under a name, as an entry of ``models.toml`` does; the keys are described at its head.

    Raises:
        InputError: the name is taken or cannot be typed, or ``like`` names no entry.
    """
    there = entries()
    if not re.fullmatch(r"\w[\w.-]*", name) or name in there.keys() - _REGISTERED.keys():
        raise InputError(f"an encoder cannot be called {name!r}", "Give a word that is not a system yet")
    if (like := entry.pop("like", None)) is not None and like not in there:
        raise InputError(f"there is no encoder {like!r}", nearest(like, there))
    _REGISTERED[name] = {**there.get(like, {}), **entry}


def entries() -> dict[str, Mapping[str, Any]]:
    """Return the entries of ``models.toml`` and of the registered kinds, by name."""
    table = dict(_file()) | _REGISTERED
    for kind in kinds.registered():
        table |= {name: {"kind": kind.name, **entry} for name, entry in kind.models.items()}
    return table


@functools.cache
def _file() -> dict[str, Mapping[str, Any]]:
    table = tomllib.loads(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))
    for name, entry in table.items():
        table[name] = table[entry.pop("like")] | entry if "like" in entry else entry
    return table


def _depths(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield each place, its character and the number of parentheses that are open after it."""
    depths = itertools.accumulate((character == "(") - (character == ")") for character in text)
    return zip(itertools.count(), text, depths, strict=False)


def _pieces(text: str) -> list[str]:
    """Split at the commas outside parentheses."""
    commas = (place for place, character, depth in _depths(text) if character == "," and depth == 0)
    pieces = (text[start + 1 : end].strip() for start, end in itertools.pairwise((-1, *commas, len(text))))
    return [piece for piece in pieces if piece]


def _name(piece: str) -> Name:
    labelled = re.fullmatch(r"([A-Za-z][\w.+-]*)\s*=\s*(.+)", piece)
    label, text = ("", piece) if labelled is None or os.path.isdir(piece) else labelled.groups()
    if text.startswith(RUN) or os.path.isdir(text):
        return Name(text, label=label)
    end = _end_of_parts(text)
    option = re.fullmatch(r"(.*?):(\w+)\s*=(.*)", text[end:])
    rest = option[1] if option else text[end:]
    options = ((option[2], option[3].strip()),) if option else ()
    if end and not rest:
        word, _, inside = text[: end - 1].partition("(")
        return Name(word, tuple(parse(inside)), options, label)
    return Name(text[:end] + rest, None, options, label)


def _end_of_parts(text: str) -> int:
    """Return where the parentheses end that follow the first word, 0 without any."""
    called = text if re.match(r"\w+\(", text) else ""
    return next((place + 1 for place, character, depth in _depths(called) if character == ")" and depth == 0), 0)


def _option(piece: str, sure: bool) -> tuple[str, str] | None:
    """Return key and value of a further option; None for a system, with or without a label, unless one is ``sure``."""
    match = re.fullmatch(r"(\w+)\s*=(.*)", piece)
    if match is None:
        return None
    key, value = match[1], match[2].strip()
    sure = sure or any(key in kind.places for kind in kinds.registered())
    return (key, value) if sure or not (re.search("[:/]", value) or is_name(value)) else None


def _without_folders(name: Name) -> Name:
    prefix = next(prefix for prefix in (VECTORS, *RERANKERS, HUB, MTEB, "") if name.base.startswith(prefix))
    place = name.base.removeprefix(prefix)
    path = prefix == VECTORS or (prefix == "" and "/" in place) or (prefix not in (HUB, MTEB) and _is_place(place))
    options = tuple((key, _last(value) if _is_place(value) else value) for key, value in name.options)
    return replace(name, base=prefix + _last(place) if path else name.base, options=options)


def _is_place(text: str) -> bool:
    if text in known():
        return False
    return text.startswith(("/", "~", "./", "../")) or text in (".", "..") or os.path.isdir(text)


def _last(place: str) -> str:
    parts = Path(os.path.abspath(Path(place).expanduser())).parts[-2:]
    return "/".join(parts) if parts[-1] in known() else parts[-1]
