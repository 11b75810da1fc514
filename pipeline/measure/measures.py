"""The measures: one table of names, definitions and engines, and the parser of names.

A measure is a function of :class:`pipeline.measure.hits.Hits` with the decorator :func:`measure`. The parser, the
engines, ``mdcr show measures`` and the tests read the table :data:`MEASURES`.

Definitions are trec_eval's: a grade of 1 or more is relevant, and denominators count all positives of a query,
retrieved or not (Medić & Šnajder 2022, section 3.3). Values are fractions from 0 to 1 unless a definition says more; a
query without results scores 0. A measure may require a higher
grade (``precision(rel=2)@20``), or cut at a percentage of the papers that each query retrieved (``ndcg%20``).

Unjudged papers count as not relevant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError, nearest
from pipeline.measure.hits import Hits, Integers, Relevant

Values = npt.NDArray[np.float64]
"""Fractions, ``[queries]``."""


@dataclass(frozen=True)
class Definition:
    """An entry of the table: names, and a function from hits up to the cutoff to a value for each query.

    ``ranx`` is the same function of ``ranx.metrics``, or empty. ``cuts``: it takes a cutoff; without one the whole
    ranking counts. ``graded``: it gains by grades, and so takes exponential gains.
    """

    name: str
    label: str
    compute: Callable[[Hits], Values]
    ranx: str
    aliases: tuple[str, ...] = ()
    cuts: bool = True
    higher_is_better: bool = True
    graded: bool = False

    @property
    def text(self) -> str:
        """The definition in words."""
        return (self.compute.__doc__ or "").strip().rstrip(".")


MEASURES: dict[str, Definition] = {}
"""All measures by name, in canonical order."""


def measure(
    name: str,
    label: str,
    *,
    ranx: str = "",
    aliases: tuple[str, ...] = (),
    cuts: bool = True,
    higher_is_better: bool = True,
    graded: bool = False,
) -> Callable[[Callable[[Hits], Values]], Callable[[Hits], Values]]:
    """Register a definition in the table; :class:`Definition` explains the arguments.

    Raises:
        InputError: the name is taken by another definition.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise InputError(f"a measure cannot be called {name!r}", "Give a word of small letters, such as first-hit")

    def enter(compute: Callable[[Hits], Values]) -> Callable[[Hits], Values]:
        if name in MEASURES and MEASURES[name].compute.__qualname__ != compute.__qualname__:
            raise InputError(f"there is a measure {name!r} already", "Give yours another name")
        MEASURES[name] = Definition(name, label, compute, ranx, aliases, cuts, higher_is_better, graded)
        return compute

    return enter


@measure("map", "MAP", ranx="average_precision", aliases=("ap", "map_cut"))
def average_precision(hits: Hits) -> Values:
    """Sum of the precision at the rank of each relevant paper, over the number of positives."""
    return _sums(hits, hits.retrieved.nth() / hits.retrieved.rank) / hits.positives


@measure("ndcg", "NDCG", ranx="ndcg", aliases=("ndcg_cut",), graded=True)
def ndcg(hits: Hits) -> Values:
    """Gain (the grade) discounted by log2(rank + 1), over that of the best order (Järvelin & Kekäläinen 2002)."""
    return _normalised_gain(hits, lambda rank: np.log2(rank + 1))


@measure("dcg", "DCG")
def dcg(hits: Hits) -> Values:
    """Gain (the grade) discounted by log2(rank + 1), not normalised: it may exceed 1."""
    papers = hits.retrieved
    return _sums(hits, papers.grade / np.log2(papers.rank + 1))


@measure("recall", "R", ranx="recall", aliases=("r",))
def recall(hits: Hits) -> Values:
    """Fraction of the positives that was retrieved."""
    return _sums(hits) / hits.positives


@measure("precision", "P", ranx="precision", aliases=("p",))
def precision(hits: Hits) -> Values:
    """Relevant papers over the cutoff, even where fewer were retrieved; uncut: over the papers retrieved."""
    return _sums(hits) / np.maximum(hits.counted, 1)


@measure("mrr", "MRR", ranx="reciprocal_rank", aliases=("rr", "recip_rank"))
def reciprocal_rank(hits: Hits) -> Values:
    """One over the rank of the first relevant paper."""
    return _sums(hits, np.where(hits.retrieved.nth() == 1, 1 / hits.retrieved.rank, 0.0))


@measure("hit_rate", "Hit", ranx="hit_rate", aliases=("hit", "success"))
def hit_rate(hits: Hits) -> Values:
    """1 where any relevant paper was retrieved."""
    return (_sums(hits) > 0).astype(np.float64)


@measure("r-precision", "R-Prec", ranx="r_precision", aliases=("r_precision", "rprec"), cuts=False)
def r_precision(hits: Hits) -> Values:
    """Precision at the rank that equals the number of positives."""
    return _sums(hits, hits.retrieved.rank <= hits.positives[hits.retrieved.query]) / hits.positives


@measure("f1", "F1", ranx="f1")
def f1(hits: Hits) -> Values:
    """Harmonic mean of precision and recall."""
    p, r = precision(hits), recall(hits)
    return 2 * p * r / np.where(p + r > 0, p + r, 1)


@measure("csfcube-r-precision", "CSF-R-Prec", cuts=False)
def precision_at_last(hits: Hits) -> Values:
    """Precision at the rank of the last relevant paper that was retrieved, as CSFCube's authors compute it."""
    last_rank = np.zeros(len(hits.positives), np.int64)
    np.maximum.at(last_rank, hits.retrieved.query, hits.retrieved.rank)
    return _sums(hits) / np.maximum(last_rank, 1)


@measure("csfcube-ndcg", "CSF-NDCG", graded=True)
def ndcg_of_csfcube(hits: Hits) -> Values:
    """NDCG with the discounts of CSFCube's authors: 1, 1, 1 / log2(3), 1 / log2(4) and so on."""
    return _normalised_gain(hits, lambda rank: np.maximum(np.log2(rank), 1))


@measure("judged", "Judged")
def judged(hits: Hits) -> Values:
    """Judged papers over the cutoff, relevant or not; uncut: over the papers retrieved."""
    nonrelevant = np.bincount(hits.nonrelevant().query, minlength=len(hits.positives))
    return (_sums(hits) + nonrelevant) / np.maximum(hits.counted, 1)


def _normalised_gain(hits: Hits, discount: Callable[[Integers], Values]) -> Values:
    """Return the discounted gain divided by that of the best order."""

    def gain(papers: Relevant) -> Values:
        return np.bincount(papers.query, papers.grade / discount(papers.rank), len(hits.positives)).astype(np.float64)

    return gain(hits.retrieved) / gain(hits.ideal)


def _sums(hits: Hits, weights: npt.NDArray[np.generic] | None = None) -> Values:
    """Return the sums of weights over the hits of queries, rank by rank; without weights, their numbers."""
    return np.bincount(hits.retrieved.query, weights, len(hits.positives)).astype(np.float64)


_SPELLING = re.compile(
    r"(?P<name>[a-z][a-z0-9_-]*?)(?:\((?P<options>[a-z0-9=,]*)\))?"
    r"(?:[@_.](?P<cutoff>[1-9][0-9]{0,8})|%(?P<share>[1-9][0-9]?))?"
)
_OPTION = re.compile(r"rel=(?P<relevant>[1-9][0-9]?)|(?P<gains>gains=exp)")


@dataclass(frozen=True)
class Measure:
    """A measure of a ranking with its cutoff; its value for a query is a fraction.

    Attributes:
        name: a key of :data:`MEASURES`.
        cutoff: number of ranks that count, or None for the whole ranking.
        relevant: the lowest relevant grade.
        share: percentage of each query's retrieved papers that count, rounded down; None: all.
        gains: ``exp``: the gain of a grade is ``2**grade - 1`` (Burges et al. 2005); empty: the grade.
    """

    name: str
    cutoff: int | None = None
    relevant: int = 1
    share: int | None = None
    gains: str = ""

    def __str__(self) -> str:
        return self.name + self._suffix

    @property
    def _suffix(self) -> str:
        options = [f"rel={self.relevant}"] * (self.relevant > 1) + [f"gains={self.gains}"] * bool(self.gains)
        return (f"({','.join(options)})" if options else "") + (
            f"@{self.cutoff}" if self.cutoff else f"%{self.share}" if self.share else ""
        )

    def compute(self, hits: Hits) -> Values:
        """Return the values of queries from the hits of whole rankings."""
        definition = MEASURES[self.name]
        selected = hits if self.relevant == 1 else hits.graded(self.relevant)
        selected = selected.with_exponential_gains() if self.gains else selected
        return definition.compute(selected.at(self.cutoff) if self.share is None else selected.share(self.share))

    @property
    def label(self) -> str:
        """Name in tables: ``MAP``, ``R@30``."""
        return MEASURES[self.name].label + self._suffix

    @property
    def sign(self) -> int:
        """1 if higher is better, else -1."""
        return 1 if MEASURES[self.name].higher_is_better else -1

    @property
    def order(self) -> tuple[int, ...]:
        """Sort key: canonical order of names, then rising grade and cutoff, uncut first."""
        return list(MEASURES).index(self.name), len(self.gains), self.relevant, self.cutoff or 0, self.share or 0


DEFAULT = (
    Measure("map"),
    Measure("ndcg"),
    Measure("ndcg", 10),
    *(Measure("recall", cutoff) for cutoff in (5, 10, 20, 30, 100)),
    Measure("precision", 1),
    Measure("mrr"),
    Measure("r-precision"),
)
"""Measures of all rankings by default, in canonical order: those of papers on citation recommendation."""


def within(measures: Iterable[Measure], depth: int) -> tuple[Measure, ...]:
    """Return the measures whose cutoff is at most the depth of a ranking."""
    return tuple(measure for measure in measures if (measure.cutoff or 0) <= depth)


def check_depth(measures: Iterable[Measure], depth: int) -> None:
    """Check that cutoffs are at most the depth of a ranking.

    Raises:
        InputError: a measure has a deeper cutoff.
    """
    deepest = max(measures, key=lambda measure: measure.cutoff or 0, default=None)
    if deepest is not None and (deepest.cutoff or 0) > depth:
        raise InputError(
            f"{deepest} needs --depth={deepest.cutoff}, got {depth}", f"Rank deeper, or ask for @{depth} or less"
        )


def parse_measures(text: str | Iterable[str]) -> tuple[Measure, ...]:
    """Return the measures of a text such as ``ndcg@10,map@100`` or ``P@1 rr``, in that order.

    Commas or white space separate names. Case is ignored, aliases and the names of trec_eval (``ndcg_cut_10``) are
    known, and repeated measures count once.

    Raises:
        InputError: measures are unknown, or there is none.
    """
    words = re.split(r"[,\s]+(?![^()]*\))", text) if isinstance(text, str) else list(text)
    words = [word for word in words if word]
    parsed = {word: _parse(word) for word in words}
    bad = [word for word, measure in parsed.items() if measure is None]
    if bad:
        names = ", ".join(map(repr, bad))
        raise InputError(f"unknown measure{'s' * (len(bad) > 1)} {names}", " ".join(_hint(word) for word in bad))
    if not words:
        raise InputError("no measure was named", f"Name some, such as {','.join(map(str, DEFAULT))}")
    return tuple(dict.fromkeys(measure for measure in parsed.values() if measure is not None))


def sign_of(measure: str) -> int:
    """Return the sign of a measure by its canonical name (:attr:`Measure.sign`)."""
    return parse_measures(measure)[0].sign


def _parse(word: str) -> Measure | None:
    if whole := _canonical(word.casefold()):
        return Measure(whole)
    match = _SPELLING.fullmatch(word.casefold())
    name = _canonical(match["name"]) if match else None
    if match is None or name is None or ((match["cutoff"] or match["share"]) and not MEASURES[name].cuts):
        return None
    options = [_OPTION.fullmatch(option) for option in match["options"].split(",")] if match["options"] else []
    given = {option.lastgroup: option[option.lastgroup or 0] for option in options if option}
    if len(given) < len(options) or ("gains" in given and not MEASURES[name].graded):
        return None
    cutoff, share = (int(match[group]) if match[group] else None for group in ("cutoff", "share"))
    return Measure(name, cutoff, int(given.get("relevant", 1)), share, "exp" if "gains" in given else "")


def _canonical(typed: str) -> str | None:
    return next((measure.name for measure in MEASURES.values() if typed in (measure.name, *measure.aliases)), None)


def _hint(word: str) -> str:
    name = _canonical(typed := re.split("[@(]", word.casefold())[0])
    if name is None:
        return nearest(typed, MEASURES)
    options = " with (rel=2)" + " or (gains=exp)" * MEASURES[name].graded
    return f"Write {name}, perhaps{options}" + f" and a cutoff from 1: {name}@10" * MEASURES[name].cuts
