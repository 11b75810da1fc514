"""Ids, and lists of ids that are written as texts: by Python, NumPy, R, JSON and databases, or between separators.

The separator of a column is decided once, over all its cells: the one that makes most parts known.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_FLOAT = re.compile(r"([0-9]+)\.0")
_BRACKETS = re.compile(
    r"(?:np\.)?(?:array\()?[\[({](.*?)[\])}](?:, dtype=[\w.]+)?\)?|(?:c|list)\((.*)\)"
    r"|(?:character|integer|numeric|logical)\(0\)",
    re.DOTALL,
)
"""A list of Python, NumPy, JSON or a database; or of R."""
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)"|([^\s,;|'"]+)""")
_CUT = "..."
"""What NumPy writes for the items that it leaves out."""
_NO_ITEMS = (_CUT, "nan", "None", "null", "NA", "NULL")
_MAX_CHARS = 2**26
"""Number of characters of cells beyond which every second, fourth and so on is taken to decide."""
_SHARE_OF_DOIS = 0.8
_SCHEMES = re.compile(r"([A-Za-z]+):\S+(?:\s+([A-Za-z]+):\S+)+")
_DOI = r"(?:https?://(?:dx\.)?doi\.org/|doi:\s*)?10\.\d{4}"

SEPARATORS = {
    ";": r";(?<!\d\.\d\.[A-Za-z]{2};)",  # not that of a SICI, as in (1998)14:1<3::AID-X1>3.0.CO;2-K
    "|": r"\|",
    "line ends": r"\n",
    ",": r",",
    "white space": r"\s+",
}
"""Separators of lists by name, as patterns; the first of equal ones is taken."""

Known = Callable[[Sequence[str]], npt.NDArray[np.bool_]]
"""Function from parts of a column to whether each is known, bool ``[n]``."""


class Split(NamedTuple):
    """How the lists in a column are written.

    Attributes:
        separator: one of :data:`SEPARATORS`; empty: a cell is one item.
        before_dois: whether the separator counts only before a DOI, as the items are DOIs.
        parts: number of items.
        known: how many are known.
        examples: the first two items that are not.
    """

    separator: str = ""
    before_dois: bool = False
    parts: int = 0
    known: int = 0
    examples: tuple[str, ...] = ()

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """Pattern between two items; None: a cell is one item."""
        found = SEPARATORS.get(self.separator)
        return re.compile(rf"\s*{found}\s*(?={_DOI}|\Z)" if self.before_dois else found) if found else None

    def items(self, cell: str) -> list[str]:
        """Return the items of a cell, without empty ones."""
        found = written_items(cell)
        if isinstance(found, str):
            found = self.pattern.split(found) if self.pattern else [found]
        return [item for part in found if (item := one_id(part)) and item not in _NO_ITEMS]


def plain_id(value: Any) -> str:
    """Return an id as text, without white space around it; a whole number that was written as 3.0 as 3."""
    text = str("" if value is None else value).strip()
    return text[:-2] if _FLOAT.fullmatch(text) else text


def one_id(value: Any, schemes: Sequence[str] = ("doi", "omid")) -> str:
    """Return an id (:func:`plain_id`); of several of one paper (``doi:10.1/x omid:br/1``), the first of ``schemes``."""
    text = plain_id(value)
    if " " not in text or not _SCHEMES.fullmatch(text):
        return text
    by_scheme = {part.partition(":")[0].lower(): part for part in reversed(text.split())}
    if len(by_scheme) < len(text.split()):
        return text
    return next((by_scheme[scheme] for scheme in schemes if scheme in by_scheme), text.split()[0])


def written_items(cell: str) -> list[Any] | str:
    """Return the items of a list in brackets whose items are quoted or JSON; else what is in the brackets, if any."""
    text = cell.strip()
    written = _BRACKETS.fullmatch(text)
    if not written:
        return text.strip("\"'") if text[:1] in "\"'" and text[:1] == text[-1:] else text
    if text.startswith("["):
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return [value for value in values if value is not None and not isinstance(value, list | dict)]
    inner = written[1] or written[2] or ""
    if "'" not in inner and '"' not in inner:
        return inner
    found = _QUOTED.findall(inner)
    return [quoted or double or bare for quoted, double, bare in found if bare not in _NO_ITEMS]


def is_cut(cell: str) -> bool:
    """Return whether NumPy left out items of a list: ``['a' 'b' ... 'z']``."""
    return _CUT in cell and _BRACKETS.fullmatch(cell.strip()) is not None and re.search(r"\s\.\.\.\s", cell) is not None


class Cells:
    """The cells of a column that holds lists as texts, or every second, fourth and so on if they are many."""

    def __init__(self) -> None:
        self._whole, self._quoted = list[str](), list[str]()
        self._seen = self._chars = 0
        self._step = 1

    def add(self, cell: str) -> None:
        """Take a cell."""
        self._seen += 1
        if self._seen % self._step:
            return
        items = written_items(cell)
        if isinstance(items, str):
            self._whole.append(items)
        else:
            self._quoted += map(str, items)
        self._chars += len(cell)
        if self._chars > _MAX_CHARS:
            self._step, self._chars = 2 * self._step, self._chars // 2
            del self._whole[::2], self._quoted[::2]

    def decide(self, known: Known, among: Sequence[str] = tuple(SEPARATORS)) -> Split:
        """Return how the lists are written.

        The separator that makes most parts known is taken; if none makes any known, the first that a cell has, but
        white space. It counts only before a DOI if more parts are known then, or as many and nearly all are DOIs.
        """
        present = [name for name in among if any(re.search(SEPARATORS[name], cell) for cell in self._whole)]
        splits = [self._best(Split(name), known) for name in (*present, "")]
        best = max(splits, key=lambda split: split.known)
        if not best.known:
            best = next((split for split in splits if split.separator != "white space"), best)
        return best

    def _best(self, split: Split, known: Known) -> Split:
        """Return the better one of a separator anywhere, and before DOIs alone."""
        plain = self._counted(split, known)
        of_dois = sum(re.match(_DOI, item) is not None for cell in self._whole for item in split.items(cell))
        if not split.separator or not of_dois:
            return plain
        dois = self._counted(split._replace(before_dois=True), known)
        are_dois = of_dois >= _SHARE_OF_DOIS * (plain.parts - len(self._quoted))
        return dois if dois.known > plain.known or (dois.known == plain.known and are_dois) else plain

    def _counted(self, split: Split, known: Known) -> Split:
        """Return a way to split with the numbers of parts and of known ones."""
        parts = [item for cell in self._whole for item in split.items(cell)] + [one_id(item) for item in self._quoted]
        are_known = known(parts)
        unknown = (part for part, is_known in zip(parts, are_known, strict=True) if not is_known)
        examples = tuple(itertools.islice(unknown, 2))
        return split._replace(parts=len(parts), known=int(np.count_nonzero(are_known)), examples=examples)
