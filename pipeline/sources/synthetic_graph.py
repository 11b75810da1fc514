"""The citation graph of the synthetic corpus: every paper's references follow from its row number alone.

A paper cites mostly what is popular, recent and near its own place; some of what it cites is famous and far, some is
missing from the release.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pipeline.core.compiled import compiled, signed
from pipeline.sources.synthetic_layout import BINS, MOST_REFERENCES, Graph, Ints, graph, lists_references, place
from pipeline.sources.synthetic_words import GOLDEN, below, mix

# Of 1,024 references: to papers the release lacks, to neighbouring topics, to what is famous in the field, to what is
# famous anywhere, to what came later in the paper's own topic (known before it was out); the rest to the own topic.
_OUTSIDE, _NEAR, _FIELD, _ANYWHERE, _LATER = (np.uint64(edge) for edge in (90, 250, 300, 324, 327))
_NEAREST_OF = 12


@compiled
def _popular(g: Graph, low: int, high: int, random: np.uint64) -> int:
    """Return a row of ``[low, high)``, three times in four drawn by popularity."""
    first = signed(g.ticket_start[low])
    tickets = signed(g.ticket_start[high]) - first
    if tickets == 0 or random & np.uint64(3) == np.uint64(0):
        return low + below(random, high - low)
    return signed(g.tickets[first + below(random, tickets)])


@compiled
def _age_rank(g: Graph, row: int, topic: int) -> float:
    """Return the share of its topic's papers that came before the paper, and with it the time of its writing."""
    start = g.topic_start[topic]
    rank: float = (row - start + 0.5) / (g.topic_start[topic + 1] - start)
    return rank


@compiled
def _famous(g: Graph, low: int, high: int, when: float, random: np.uint64) -> int:
    """Return an earlier row of ``[low, high)`` drawn by popularity alone, or -1 after a few tries."""
    for attempt in range(4):
        row = _popular(g, low, high, mix(random + np.uint64(attempt)))
        topic = signed(np.searchsorted(g.topic_start, row, side="right")) - 1
        if _age_rank(g, row, topic) < when:
            return row
    return -1


@compiled
def _neighbour(g: Graph, topic: int, random: np.uint64) -> int:
    """Return a topic at a small distance on the field's ring."""
    first = signed(g.field_topic[g.topic_field[topic]])
    count = signed(g.field_topic[g.topic_field[topic] + 1]) - first
    step = 1
    while random & np.uint64(3) == np.uint64(0) and step < 8:
        random >>= np.uint64(2)
        step += 1
    if random & np.uint64(4):
        step = -step
    return first + (topic - first + step) % count


@compiled
def _target(g: Graph, row: int, topic: int, kind: np.uint64, random: np.uint64) -> int:
    """Return a row to cite, or -1 where there is none to be had."""
    when = _age_rank(g, row, topic)
    if _NEAR <= kind < _FIELD:
        field = g.topic_field[topic]
        low, high = g.topic_start[g.field_topic[field]], g.topic_start[g.field_topic[field + 1]]
        return _famous(g, low, high, when, random)
    if _FIELD <= kind < _ANYWHERE:
        return _famous(g, 0, g.papers, when, random)
    own = kind >= _ANYWHERE
    cited = topic if own else _neighbour(g, topic, random)
    start, end = g.topic_start[cited], g.topic_start[cited + 1]
    high = row if own else start + signed(when * (end - start))
    window = below(mix(random + np.uint64(1)), 3)
    low = start + signed(g.lookback[window, signed(when * BINS)] * (end - start))
    if low >= high:
        low = start
    if own and kind < _LATER:
        low, high = row + 1, end
    if low >= high:
        return -1
    here = place(g, row, topic)
    best, nearest = -1, 1 << 40
    for attempt in range(_NEAREST_OF):
        candidate = _popular(g, low, high, mix(random + np.uint64(2 + attempt)))
        distance = abs(place(g, candidate, cited) - here)
        if distance < nearest:
            best, nearest = candidate, distance
    return best


@compiled
def cite(g: Graph, row: int, topic: int, found: Ints) -> int:
    """Write the rows a paper cites into ``found`` (int64 ``[MOST_REFERENCES]``) and return how many.

    They are all different, none is the paper itself; rows from ``papers`` on are papers the release lacks.
    """
    state = mix(g.salts[0] + np.uint64(row) * GOLDEN)
    wanted = signed(g.reference_counts[state & np.uint64(BINS - 1)])
    count = 0
    for _ in range(2 * wanted):
        if count == wanted:
            break
        state += GOLDEN
        random = mix(state)
        kind = random & np.uint64(1023)
        random = mix(random)
        outside = kind < _OUTSIDE
        target = g.papers + below(random, g.papers // 2) if outside else _target(g, row, topic, kind, random)
        new = target >= 0
        for earlier in range(count):
            if found[earlier] == target:
                new = False
                break
        if new:
            found[count] = target
            count += 1
    return count


@compiled
def references(g: Graph, rows: Ints, topics: Ints, indptr: Ints) -> Ints:
    """Return the rows that ``rows`` cite, papers without a parse included, and fill ``indptr`` (int64 ``[n + 1]``)."""
    targets = np.empty(32 * len(rows) + MOST_REFERENCES, np.int64)
    indptr[0] = 0
    for number in range(len(rows)):
        at = indptr[number]
        if at + MOST_REFERENCES > len(targets):
            grown = np.empty(2 * len(targets), np.int64)
            grown[:at] = targets[:at]
            targets = grown
        indptr[number + 1] = at + cite(g, rows[number], topics[number], targets[at:])
    return targets[: indptr[len(rows)]].copy()


@compiled
def count_inbound(g: Graph, counts: npt.NDArray[np.int32]) -> None:
    """Add to ``counts`` (int32 ``[papers]``) how often each paper is cited."""
    found = np.empty(MOST_REFERENCES, np.int64)
    for topic in range(len(g.topic_field)):
        for row in range(g.topic_start[topic], g.topic_start[topic + 1]):
            if lists_references(g, row):
                for number in range(cite(g, row, topic, found)):
                    if found[number] < g.papers:
                        counts[found[number]] += 1


@compiled
def fill_inbound(g: Graph, cursor: Ints, citing: npt.NDArray[np.uint32]) -> None:
    """Write the citing rows of each paper into ``citing`` from ``cursor`` (int64 ``[papers]``) on; moves ``cursor``."""
    found = np.empty(MOST_REFERENCES, np.int64)
    for topic in range(len(g.topic_field)):
        for row in range(g.topic_start[topic], g.topic_start[topic + 1]):
            if lists_references(g, row):
                for number in range(cite(g, row, topic, found)):
                    target = found[number]
                    if target < g.papers:
                        citing[cursor[target]] = row
                        cursor[target] += 1


@lru_cache(maxsize=2)
def inbound_counts(papers: int, seed: int) -> npt.NDArray[np.int32]:
    """Return how often each paper is cited, int32 ``[papers]``: one pass over the whole graph, once a process."""
    counts = np.zeros(papers, np.int32)
    count_inbound(graph(papers, seed), counts)
    return counts
