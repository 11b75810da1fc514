"""Comparison of two systems on the same pools: differences of means, and the queries that differ most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, nearest
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.measure.measures import sign_of
from pipeline.measure.statistics import bootstrap_means, confidence_interval, interval_kind, paired_permutation
from pipeline.report.averaging import average
from pipeline.report.caption import scope
from pipeline.report.choice import is_called
from pipeline.report.collect import load
from pipeline.report.comparison import ComparedQuery, Comparison, Difference, Positive
from pipeline.report.identity import Chosen
from pipeline.report.model import ReportSettings, Scored, Setup, unique


class Side(NamedTuple):
    """One system on one pool."""

    chosen: Chosen
    scored: Scored


Pair = tuple[Side, Side]
"""Both systems on one pool."""


def paired(chosen: Sequence[Chosen], first: str, second: str) -> list[Pair]:
    """Return two systems on each pool that both were scored on.

    Args:
        chosen: scores of one table (:func:`pipeline.report.collect.tables`); other systems are left out.
        first: name or label of a row.
        second: of another row.

    Raises:
        InputError: a name means no row or several, or the two have no pool in common.
    """
    loaded = [Side(*each) for each in zip(chosen, load(chosen), strict=True)]
    labels = [_label(loaded, name) for name in (first, second)]
    if labels[0] == labels[1]:
        raise InputError(f"two rows must be compared, got {labels[0]} twice", "Name two systems")
    one, other = ({side.scored.pool.name: side for side in loaded if side.scored.system == label} for label in labels)
    pairs = [(one[pool], other[pool]) for pool in one if pool in other]
    if not pairs:
        raise InputError(
            f"{labels[0]} and {labels[1]} must be scored on the same pools, got none in common",
            f"Run mdcr eval --model {first},{second}",
        )
    return pairs


def compare(
    pairs: Sequence[Pair],
    settings: ReportSettings,
    *,
    measures: Sequence[str] | None = None,
    most: int = 10,
) -> list[Comparison]:
    """Compare two systems: a comparison for each field and size.

    Args:
        pairs: of :func:`paired`.
        settings: seed, draws and level of the bootstrap and of the permutation test.
        measures: canonical names; None: all that both have. The first decides which queries differ most.
        most: number of queries shown.

    Raises:
        InputError: a measure was not scored for both, or the corpus is gone.
    """
    setups = dict.fromkeys(pair[0].scored.pool.setup for pair in pairs)
    return [
        _comparison([pair for pair in pairs if pair[0].scored.pool.setup == setup], setup, settings, measures, most)
        for setup in setups
    ]


def _label(loaded: Sequence[Side], name: str) -> str:
    """Return the label of the one row that a name or label means."""
    known = unique([side.scored.system for side in loaded])
    found = [name] if name in known else unique([s.scored.system for s in loaded if is_called(s.chosen, name)])
    if not found:
        raise InputError(f"{name!r} must be a system that was scored on these pools", nearest(name, known))
    if len(found) > 1:
        raise InputError(
            f"{name!r} must mean one row, got {'; '.join(found)}", "Give its label, or choose with --depth"
        )
    return found[0]


def _comparison(
    pairs: Sequence[Pair], setup: Setup, settings: ReportSettings, measures: Sequence[str] | None, most: int
) -> Comparison:
    sides = [side.scored for pair in pairs for side in pair]
    first, second = (side.scored.system for side in pairs[0])
    common = [name for name in sides[0].measures if all(name in side.measures for side in sides)]
    for name in measures or ():
        if name not in common:
            raise InputError(f"{name} must be scored for both rows", f"Choose from {', '.join(common)}")
    shown = list(measures or common)
    averaged = average(sides, shown, settings)
    values = [np.stack([averaged[setup, system, name].values for name in shown]) for system in (first, second)]
    seeded: dict[str, Any] = {"seed": settings.seed, "item": setup.field or ""}
    change = values[1] - values[0]
    means = bootstrap_means(change, resamples=settings.resamples, **seeded)
    low, high = confidence_interval(means, change, level=settings.level)
    p_values = paired_permutation(change, permutations=settings.permutations, **seeded)
    gain = change * np.array([sign_of(name) for name in shown])[:, None]
    signs = [np.count_nonzero(each, axis=1) for each in (gain > 0, gain == 0, gain < 0)]
    columns = (*(each.mean(axis=1) for each in (*values, change)), low, high, p_values, *signs)
    return Comparison(
        first=first,
        second=second,
        field=setup.field,
        scope=scope(sides[0]),
        size=setup.size,
        pools=tuple(pair[0].scored.pool.name for pair in pairs),
        queries=change.shape[1],
        interval=interval_kind(change.shape[1]),
        level=settings.level,
        differences=tuple(map(Difference, shown, *(column.tolist() for column in columns))),
        most_different=tuple(_most_different(pairs, shown[0], most)),
        changes=change,
    )


def _most_different(pairs: Sequence[Pair], measure: str, most: int) -> Iterator[ComparedQuery]:
    """Yield the queries with the largest differences, each on the sample where it is largest."""
    by_pool = [np.stack([s.scored.values[s.scored.measures.index(measure)] for s in pair]) for pair in pairs]
    places = [(pair, number) for pair, values in enumerate(by_pool) for number in range(values.shape[1])]
    size = np.abs(np.concatenate([values[1] - values[0] for values in by_pool]))
    opened: dict[int, _Opened] = {}
    first_of: dict[int, int] = {}
    for place in np.argsort(-size, kind="stable").tolist():
        first_of.setdefault(places[place][1], place)
    for place in list(first_of.values())[:most]:
        at, number = places[place]
        pair = pairs[at]
        if at not in opened:
            opened[at] = _Opened.of(pair)
        query = int(pair[0].scored.queries[number])
        first, second = by_pool[at][:, number].tolist()
        paper = opened[at].query(query)
        yield ComparedQuery(**paper, pool=pair[0].scored.pool.name, first=first, second=second,
                            positives=opened[at].positives(query))  # fmt: skip


class _Opened(NamedTuple):
    """A pool, and where both rankings have its papers: row to rank, by query."""

    pool: Pool
    ids: Sequence[str]
    ranks: Sequence[Mapping[str, npt.NDArray[Any]]]

    @classmethod
    def of(cls, pair: Pair) -> _Opened:
        chosen = pair[0].chosen
        if chosen.corpus is None:
            raise InputError(f"the corpus {chosen.corpus_name} must be there to name papers", "Build it again")
        pool = Pool(chosen.pool, Corpus(chosen.corpus))
        return cls(pool, pool.query_ids(), [_columns(side.chosen.ranking) for side in pair])

    def query(self, query: int) -> dict[str, Any]:
        row = self.pool.query_rows[query : query + 1]
        if self.pool.queries_are_papers:
            (paper,) = self.pool.corpus.take(row, ["title", "year"]).to_pylist()
        else:
            paper = {"title": self.pool.corpus.query_texts.column("text")[int(row[0])].as_py(), "year": None}
        return {"query_id": self.ids[query], **paper}

    def positives(self, query: int) -> tuple[Positive, ...]:
        """Return the relevant papers of a query, those that either ranks best first."""
        qrels = {name: self.pool.qrels.column(name).to_numpy() for name in ("query", "row", "grade")}
        rows = qrels["row"][(qrels["query"] == query) & (qrels["grade"] >= 1)]
        papers = self.pool.corpus.take(rows, ["paper_id", "title", "year"]).to_pylist()
        found = []
        for row, paper in zip(rows.tolist(), papers, strict=True):
            first, second = (_rank(each, query, row) for each in self.ranks)
            found.append(Positive(**paper, first_rank=first, second_rank=second))
        return tuple(sorted(found, key=lambda each: min(each.first_rank or np.inf, each.second_rank or np.inf)))


def _columns(ranking: Artifact) -> dict[str, npt.NDArray[Any]]:
    table = ranking.arrow("ranking.arrow")
    return {name: table.column(name).to_numpy() for name in ("query", "row", "rank")}


def _rank(ranking: Mapping[str, npt.NDArray[Any]], query: int, row: int) -> int | None:
    start, end = np.searchsorted(ranking["query"], [query, query + 1])
    (found,) = np.flatnonzero(ranking["row"][start:end] == row)[:1].tolist() or [None]
    return None if found is None else int(ranking["rank"][start + found])
