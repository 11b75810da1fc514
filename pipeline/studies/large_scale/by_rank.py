"""Tables made from rankings: the first sample of the largest pool of each field, over all queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pipeline.corpus.marks import MARKS
from pipeline.measure.inputs import Mask
from pipeline.measure.statistics import Floats, interval, rank_correlation
from pipeline.studies.base import StudyTable
from pipeline.studies.large_scale import ranks
from pipeline.studies.large_scale.data import PoolRuns, marks_of
from pipeline.studies.large_scale.leakage import ALIKE, FIRST, audit
from pipeline.studies.large_scale.marks import YEARS, precision_among, results
from pipeline.studies.large_scale.recipe import DATASET
from pipeline.studies.large_scale.winners import between, facts, within
from pipeline.studies.tables import Measurement, interval_table, share

_CUTOFF = 30
_POOLS = "Largest pool of each field, first sample; every query counts once."


def _scopes(ranked: Sequence[PoolRuns]) -> dict[str, list[PoolRuns]]:
    """Return the pools that are shown together: of the dataset level, and of fields."""
    parts = {
        "dataset": [each for each in ranked if each.group == DATASET],
        "fields": [each for each in ranked if each.group != DATASET],
    }
    return {name: pools for name, pools in parts.items() if pools}


def _systems(pools: Sequence[PoolRuns]) -> list[str]:
    return [system for system in pools[0].runs if all(system in each.runs for each in pools)]


def _pooled(
    ranked: Sequence[PoolRuns], seed: int, of: Callable[[PoolRuns, str], Floats], columns: Sequence[str]
) -> Iterator[Measurement]:
    """Yield each row of ``of(pool, system)``, float64 ``[columns, queries]``, over the queries of all pools."""
    for scope, pools in _scopes(ranked).items():
        for system in _systems(pools):
            values = np.concatenate([of(each, system) for each in pools], axis=1)
            for column, row in zip(columns, values, strict=True):
                yield Measurement(f"{scope} {system}", column, *interval(row, seed, scope))


def recall(ranked: Sequence[PoolRuns], seed: int, depth: int) -> StudyTable:
    """Return recall by depth."""
    depths = [each for each in ranks.DEPTHS if each <= depth]

    def of(pool: PoolRuns, system: str) -> Floats:
        return ranks.recall_by_depth(ranks.ranks_of(pool.runs[system], pool.qrels), pool.qrels, depths)

    rows = _pooled(ranked, seed, of, list(map(str, depths)))
    return interval_table("recall-by-depth", "Recall by depth", "system", rows, [_POOLS])


def losses(ranked: Sequence[PoolRuns], seed: int, depth: int) -> StudyTable:
    """Return what the positives of each band of ranks cost of MAP."""

    def of(pool: PoolRuns, system: str) -> Floats:
        return ranks.loss_by_band(ranks.ranks_of(pool.runs[system], pool.qrels), pool.qrels)

    rows = [row for row in _pooled(ranked, seed, of, ranks.band_names(depth)) if row.column]
    note = "Points of MAP that the positives at these ranks lack; they sum to 100 less MAP."
    return interval_table("losses", "What the rank of positives costs", "system", rows, [note, _POOLS])


def popularity(ranked: Sequence[PoolRuns], seed: int) -> StudyTable:
    """Return recall at 30 by the citations of the positives."""
    rows: list[Measurement] = []
    told = []
    for scope, pools in _scopes(ranked).items():
        cited = [each.pool.corpus.attributes["n_inbound"][each.qrels.rows] for each in pools]
        bounds = ranks.thirds(np.concatenate(cited))
        told.append(f"{scope}: least up to {bounds[0]:,}, middle up to {bounds[1]:,} citations")

        def of(pool: PoolRuns, system: str, bounds: list[int] = bounds) -> Floats:
            found = ranks.ranks_of(pool.runs[system], pool.qrels)
            classes = np.searchsorted(bounds, pool.pool.corpus.attributes["n_inbound"][pool.qrels.rows])
            return ranks.recall_by_class(found, pool.qrels, classes, 3, _CUTOFF)

        rows += _pooled(pools, seed, of, ["least cited", "middle", "most cited"])
    note = f"Thirds of the positives by the citations that the release lists ({'; '.join(told)})."
    return interval_table("popularity", f"R@{_CUTOFF} by citations of the positives", "system", rows, [note, _POOLS])


def shares(ranked: Sequence[PoolRuns]) -> StudyTable:
    """Return the shares of positives and negatives that lack an abstract, a year or references."""
    rows = []
    for each in ranked:
        for kind, counts in marks_of(each).items():
            label = f"{each.group} {kind} ({counts['papers']:,})"
            rows += [share(label, mark.replace("_", " "), counts[mark], counts["papers"]) for mark in MARKS]
    return interval_table(
        "marks", "What marks a positive", "candidates", rows, ["Papers count once, however many cite them."]
    )


def without_marks(ranked: Sequence[PoolRuns], baseline: str, seed: int) -> Iterator[StudyTable]:
    """Yield MAP with all candidates, with text alone, and with matched negatives; and gains over the baseline."""
    rows, gains = [], []
    for scope, pools in _scopes(ranked).items():
        found = [results(each, seed) for each in pools]
        values = {
            (kind, system): np.concatenate([each[kind][system] for each in found])
            for kind in found[0]
            for system in _systems(pools)
        }
        for system in _systems(pools):
            cost = values["matched negatives", system] - values["random negatives", system]
            gains.append(Measurement(f"{scope}: matched less random", system, *interval(cost, seed, scope)))
        for (kind, system), own in values.items():
            rows.append(Measurement(f"{scope}: {kind}", system, *interval(own, seed, scope)))
            if system != baseline and (kind, baseline) in values:
                gain = own - values[kind, baseline]
                gains.append(Measurement(f"{scope}: gain, {kind}", system, *interval(gain, seed, scope)))
    notes = (
        "With text: papers without title or abstract are removed. Matched negatives: each positive has one negative "
        f"with or without an abstract as itself, of the same {YEARS} years and like length; positives without one are "
        "removed. Random negatives: the same positives and as many negatives drawn at random.",
        "Rankings are cut to these candidates, and queries without positives are left out.",
        _POOLS,
    )
    yield interval_table("without-marks", "MAP without what marks a positive", "candidates", rows, notes)
    told = (f"Gain: over {baseline}, query by query.", *notes)
    yield interval_table("without-marks-gains", "Gains without what marks a positive", "candidates", gains, told)


def winners(ranked: Sequence[PoolRuns], baseline: str, seed: int) -> Iterator[StudyTable]:
    """Yield rank correlations of each system's gain over the baseline with facts about the queries."""
    rows = []
    for scope, pools in _scopes(ranked).items():
        if baseline not in _systems(pools):
            continue
        known = [facts(each) for each in pools]
        by_fact = {name: np.concatenate([within(each[name]) for each in known]) for name in known[0]}
        everything = np.ones(len(pools[0].pool.corpus), bool)
        values = {
            system: [precision_among(each, each.runs[system], everything) for each in pools]
            for system in _systems(pools)
        }
        for system in values:
            if system == baseline:
                continue
            gains = [mine - base for mine, base in zip(values[system], values[baseline], strict=True)]
            ranked_gains = np.concatenate([within(each) for each in gains])
            for name, fact in by_fact.items():
                rows.append(Measurement(f"{scope}: {name}", system, *rank_correlation(ranked_gains, fact, seed, scope)))
            if len(pools) > 1:
                rows.append(Measurement(f"{scope}: field (share of variance)", system, *between(gains, seed)))
    if rows:
        notes = (
            f"Spearman's correlation of the gain in average precision over {baseline} with a fact about the query. "
            "Shared words: share of the query's words that a positive has. Age: years from positive to query.",
            "Ranks are within each field, so differences between fields do not count. They are the last row: the share "
            "of the variance of the gain that lies between fields (epsilon squared).",
            _POOLS,
        )
        yield interval_table("winners", "What explains who wins a query", "fact", rows, notes, scale=1)


def leakage(ranked: Sequence[PoolRuns], trained: Mask | None) -> StudyTable:
    """Return shares of queries and positives that may leak, and in training lists where there are any."""
    rows = [
        share(each.group, column, int(flags.sum()), len(flags))
        for each in ranked
        for column, flags in audit(each, trained).items()
    ]
    notes = (
        f"Alike: titles whose words have a Jaccard index of at least {ALIKE}; hits: the first {FIRST} of every system. "
        "Younger: of a later year than the query.",
        *(() if trained is not None else ("The recipe names no training lists.",)),
    )
    return interval_table("leakage", "Leakage audit", "field", rows, notes)
