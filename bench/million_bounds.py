"""What judgements that are missing do: MAP, and the order of systems, when known links are deleted at random.

    python bench/million_bounds.py ROOT corpus=million year=2019 samples=1 'systems=bm25:k1=0.9,b=0.4,lsa'

A deleted link leaves its paper in the pool, where it counts as a negative, as a cited paper does whose link the release
lacks. For each pool of stored scores that the settings choose: MAP, and MAP when 10, 20 and 50% are deleted (mean and
95% of 500 draws; the same draws for all systems; queries without a link left are left out); then, for each two systems,
the difference of the second and the first likewise, and the share of draws that have its sign.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.core.rng import generator
from pipeline.measure.inputs import query_of
from pipeline.scores.choose import choose, settings_of_choice
from pipeline.scores.store import open_rankings, stored

_SHARES, _DRAWS, _SEED = (0.1, 0.2, 0.5), 500, 13

Floats = npt.NDArray[np.float64]


def means(
    query: npt.NDArray[np.integer], ranks: npt.NDArray[np.int64], drawn: Iterable[npt.NDArray[np.bool_]]
) -> Floats:
    """Return MAP over the queries that keep a positive, by draw.

    Args:
        query: of each positive, rising.
        ranks: from 1; 0: not retrieved.
        drawn: for each draw, which positives are kept, bool ``[positives]``.
    """
    order = np.lexsort((np.where(ranks > 0, ranks, np.iinfo(np.int64).max), query))
    first, rank, found = np.searchsorted(query, query), np.maximum(ranks[order], 1), ranks[order] > 0
    values = []
    for kept in drawn:
        in_order = kept[order]
        before = np.append(0, np.cumsum(in_order))
        precision = np.where(in_order & found, (before[1:] - before[first]) / rank, 0.0)
        positives = np.bincount(query, in_order)
        values.append((np.bincount(query, precision)[positives > 0] / positives[positives > 0]).mean())
    return np.array(values)


def shown(values: Floats, of: float | None = None) -> str:
    """Return mean and 95% of draws in percent, and the share of draws that have the sign of a value."""
    low, high = 100 * np.quantile(values, [0.025, 0.975])
    same = "" if of is None else f" {np.mean(np.sign(values) == np.sign(of)):.0%}"
    return f"{100 * values.mean():.2f} [{low:.2f}, {high:.2f}]{same}"


def main(root: Path, *settings: str) -> None:
    """Print a line for each pool and system, or two systems: the figure with all links, and by share deleted."""
    runs = choose(stored(root), root, **settings_of_choice(**dict(setting.split("=", 1) for setting in settings)))
    print("candidates", "system", "all", *(f"less {share:.0%}" for share in _SHARES), sep=" | ")
    for pool in runs.sort("size", "sample", maintain_order=True).partition_by("pool", maintain_order=True):
        opened, size = open_rankings(pool), f"{pool['size'][0]:,}"
        query, count = query_of(opened.qrels.offsets), len(opened.qrels.rows)
        every = np.ones(count, bool)
        draws = {
            share: [generator(_SEED, f"delete {share}", draw).random(count) >= share for draw in range(_DRAWS)]
            for share in _SHARES
        }
        whole = {label: float(means(query, ranks, [every])[0]) for label, ranks in opened.ranks.items()}
        left = {label: [means(query, ranks, draws[s]) for s in _SHARES] for label, ranks in opened.ranks.items()}
        for label, values in left.items():
            print(size, label, f"{100 * whole[label]:.2f}", *map(shown, values), sep=" | ")
        for one, two in itertools.combinations(whole, 2):
            change, by_share = whole[two] - whole[one], zip(left[one], left[two], strict=True)
            texts = [shown(second - first, change) for first, second in by_share]
            print(size, f"{two} - {one}", f"{100 * change:.2f}", *texts, sep=" | ")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
