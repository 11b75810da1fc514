"""The plan of the synthetic corpus: how its papers are numbered, what there is to know of one from its number.

Rows are numbered by field, topic and time, so that "earlier papers of a topic" is a range of rows and nothing needs to
be stored for a paper but its popularity. The topics of a field lie on a ring; a paper sits at a place of its topic.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.compiled import compiled, signed
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.rng import priorities
from pipeline.sources.synthetic_words import GOLDEN, Floats, mix

Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

FIRST_YEAR, LAST_YEAR = 1970, 2020
_GROWTH = 0.07
_LAST_YEAR_SHARE = 0.6
"""The release is of July 2020: that year is not whole."""

_FIELD_WEIGHTS = {
    "Art": 1.6, "Biology": 12, "Business": 2.4, "Chemistry": 10, "Computer Science": 9, "Economics": 2.6,
    "Engineering": 5, "Environmental Science": 1.8, "Geography": 1.8, "Geology": 2.4, "History": 1.8,
    "Materials Science": 6, "Mathematics": 6, "Medicine": 19, "Philosophy": 1.2, "Physics": 9, "Political Science": 2.4,
    "Psychology": 4.4, "Sociology": 2.8,
}  # fmt: skip

MOST_REFERENCES = 200
BINS = 1024
_WINDOWS = (4.0, 12.0, 60.0)
"""Years a reference may look back: one of the three for each."""

_UNPARSED = np.uint64(int(0.22 * 2**32))
_NO_REFERENCES = np.uint64(int(0.24 * 2**32))


class Graph(NamedTuple):
    """What every kernel needs of the corpus (a tuple of arrays: Numba takes it as it is).

    Attributes:
        papers: number of papers.
        topic_start: int64 ``[topics + 1]``, first row of each topic.
        topic_field: int64 ``[topics]``, field of each topic.
        field_topic: int64 ``[20]``, first topic of each field.
        tickets: uint32 ``[2 * papers]``, rows in order, each as often as it is popular: one drawn at random is a paper
            drawn by popularity.
        ticket_start: uint32 ``[papers + 1]``, first ticket of each row.
        lookback: float64 ``[3, bins]``, the quantile of publication years that a window reaches back to from each
            quantile.
        year_edges: float64 ``[years]``, share of papers up to the end of each year.
        reference_counts: uint16 ``[bins]``, length of a reference list at each quantile.
        id_bits: half the bits of an id.
        salts: uint64 ``[4]``: references, places, ids, parses.
    """

    papers: int
    topic_start: Ints
    topic_field: Ints
    field_topic: Ints
    tickets: npt.NDArray[np.uint32]
    ticket_start: npt.NDArray[np.uint32]
    lookback: Floats
    year_edges: Floats
    reference_counts: npt.NDArray[np.uint16]
    id_bits: int
    salts: Keys


def salt(seed: int, purpose: str) -> np.uint64:
    """Return the random word that tells one purpose's hashes from another's."""
    return np.uint64(priorities(np.zeros(1, np.uint64), seed, "synthetic/" + purpose)[0])


def lognormal(median: float, sigma: float, low: int, high: int, size: int = BINS) -> npt.NDArray[np.uint16]:
    """Return whole numbers at the quantiles of a lognormal distribution, clipped: uint16 ``[size]``."""
    normal = NormalDist()
    values = [median * np.exp(sigma * normal.inv_cdf((i + 0.5) / size)) for i in range(size)]
    return np.clip(np.rint(values), low, high).astype(np.uint16)


@lru_cache(maxsize=2)
def graph(papers: int, seed: int) -> Graph:
    """Lay out the corpus of ``papers`` papers: 12 bytes a paper, and some for each topic."""
    weights = np.array([_FIELD_WEIGHTS[name] for name in MAG_FIELDS])
    field_start = _bounds(weights, papers)
    mean_size = 64 * max(papers / 1_000, 1) ** 0.45
    topic_start: list[Ints] = []
    topics_of = []
    for number, size in enumerate(np.diff(field_start)):
        topics = max(1, round(size / mean_size))
        order = np.argsort(priorities(np.arange(topics, dtype=np.uint64), seed, "synthetic/topics", number))
        topic_start.append(field_start[number] + _bounds((order + 4.0) ** -0.6, int(size))[:-1])
        topics_of.append(topics)
    years = np.arange(FIRST_YEAR, LAST_YEAR + 1)
    by_year = np.exp(_GROWTH * (years - FIRST_YEAR))
    by_year[-1] *= _LAST_YEAR_SHARE
    edges = np.cumsum(by_year) / by_year.sum()
    share, time = np.concatenate([[0.0], edges]), np.arange(FIRST_YEAR, LAST_YEAR + 2.0)
    now = np.interp((np.arange(BINS) + 0.5) / BINS, share, time)
    ticket_start = _ticket_start(papers, seed)
    return Graph(
        papers=papers,
        topic_start=np.append(np.concatenate(topic_start), papers),
        topic_field=np.repeat(np.arange(len(weights)), topics_of),
        field_topic=np.concatenate([[0], np.cumsum(topics_of)]),
        tickets=np.repeat(np.arange(papers, dtype=np.uint32), np.diff(ticket_start)),
        ticket_start=ticket_start,
        lookback=np.array([np.interp(now - window, time, share) for window in _WINDOWS]),
        year_edges=edges,
        reference_counts=lognormal(32, 0.45, 1, MOST_REFERENCES),
        id_bits=max(12, (int(16 * papers - 1).bit_length() + 1) // 2),
        salts=np.array([salt(seed, purpose) for purpose in ("references", "places", "ids", "parses")]),
    )


def _bounds(weights: Floats, total: int) -> Ints:
    bounds: Ints = np.rint(np.concatenate([[0.0], np.cumsum(weights) / weights.sum()]) * total).astype(np.int64)
    return bounds


def _ticket_start(papers: int, seed: int) -> npt.NDArray[np.uint32]:
    """Return how many tickets the rows before each hold, ``[papers + 1]``: a heavy-tailed share of two a paper."""
    mass = np.zeros(papers + 1, np.uint64)
    block = 1 << 20
    for start in range(0, papers, block):
        rows = np.arange(start, min(start + block, papers), dtype=np.uint64)
        uniform = ((priorities(rows, seed, "synthetic/popularity") >> np.uint64(11)) + 0.5) * 2.0**-53
        mass[start + 1 : start + 1 + len(rows)] = np.minimum(16 * uniform ** (-1 / 1.1), 2.0**16).astype(np.uint64)
    np.cumsum(mass, out=mass)
    start_of: npt.NDArray[np.uint32] = (mass / mass[-1] * (2 * papers)).astype(np.uint32)
    return start_of


@compiled
def paper_id(g: Graph, row: int) -> np.uint64:
    """Return the id of a row: four rounds of a Feistel network, so that ids are different and in no order of rows.

    Rows from ``papers`` on have ids too: those of papers the release lacks.
    """
    bits = np.uint64(g.id_bits)
    mask = (np.uint64(1) << bits) - np.uint64(1)
    left, right = np.uint64(row) >> bits, np.uint64(row) & mask
    for turn in range(4):
        left, right = right, left ^ (mix(g.salts[2] + right * GOLDEN + np.uint64(turn)) & mask)
    return ((left << bits) | right) + np.uint64(1)


@compiled
def place(g: Graph, row: int, topic: int) -> int:
    """Return where on its field's ring of topics a paper sits, in 256ths of a topic."""
    spot = mix(g.salts[1] + np.uint64(row) * GOLDEN) >> np.uint64(56)
    return signed(256 * (topic - g.field_topic[g.topic_field[topic]])) + signed(spot)


@compiled
def is_parsed(g: Graph, row: int) -> bool:
    """Whether the release has the paper's full text, and with it its references."""
    return bool((mix(g.salts[3] + np.uint64(row) * GOLDEN) >> np.uint64(32)) >= _UNPARSED)


@compiled
def lists_references(g: Graph, row: int) -> bool:
    """Whether any reference of the paper was found in its full text."""
    return bool((mix(g.salts[3] + np.uint64(row) * GOLDEN) >> np.uint64(32)) >= _NO_REFERENCES)
