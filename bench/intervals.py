"""Coverage of 95% intervals and size of tests at 5%, by simulation.

    python bench/intervals.py [--quick]

Values of queries are like average precision: beta(0.35, 2), skewed. Differences are zero for a third of the queries.
Each row says how often the interval holds the truth, or how often the test rejects, with its Monte Carlo error.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from pipeline.measure.board import board
from pipeline.measure.design import Draws, estimate
from pipeline.measure.ranks import all_pairs, ranks, ranks_with_ends, standings
from pipeline.measure.resampling import resampled
from pipeline.measure.statistics import (
    bootstrap_means,
    confidence_interval,
    interval,
    mean_of_means,
    permutation_of_means,
    simultaneous,
)
from pipeline.scores.average import BY_SAMPLE

MEAN = 0.35 / 2.35
Row = tuple[str, float, np.ndarray]
"""What is simulated, the nominal rate, and whether it happened in each run, bool ``[runs]``."""


def precisions(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Values whose mean is :data:`MEAN`."""
    return random.beta(0.35, 2.0, shape)


def gaps(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Differences of two systems of like quality."""
    changes = random.beta(0.5, 3.0, shape) - random.beta(0.5, 3.0, shape)
    return np.where(random.random(shape) < 1 / 3, 0.0, changes)


def queries_and_samples(runs: int) -> Iterator[Row]:
    """``--resample``: 200 queries; samples of a pool differ by one deviation each, and by one of query and sample."""
    for deviation in (0.005, 0.03):
        for samples in (3, 5, 10):
            random = np.random.default_rng(samples)
            of_query = precisions(random, runs, 1, 200)
            values = of_query + random.normal(0, deviation, (runs, samples, 1))
            values += random.normal(0, 0.05, (runs, samples, 200))
            run, sample, query = (axis.ravel() for axis in np.indices(values.shape))
            frame = pl.DataFrame({"label": run.astype(str), "sample": sample, "query": query, "value": values.ravel()})
            known = {"field": None, "size": 1, "measure": "map", "positives": 1, "seed": 1}
            frame = frame.with_columns(
                pl.lit("s").alias("pool"), **{name: pl.lit(value) for name, value in known.items()}
            )
            # Where samples alone are resampled, the queries are those that there are.
            truths = {"queries": MEAN, "papers": of_query.mean(axis=(1, 2)), "both": MEAN}
            for resample, truth in truths.items():
                draws = Draws(resample=resample)  # type: ignore[arg-type]
                found = estimate(frame, BY_SAMPLE, 1, draws=draws)
                low, high = found["low"].to_numpy(), found["high"].to_numpy()
                name = f"--resample={resample}, {samples} samples that deviate by {100 * deviation:g} points"
                yield name, 0.95, (low <= truth) & (truth <= high)


def few_queries(runs: int) -> Iterator[Row]:
    """Intervals of the mean of few queries, and what percentiles alone would do."""
    for queries in (20, 50):
        data = precisions(np.random.default_rng(1), 4 * runs, queries)
        means = bootstrap_means(data, seed=1)
        low, high = confidence_interval(means, data)
        yield f"BCa, {queries} queries", 0.95, (low <= MEAN) & (high >= MEAN)
        low, high = np.quantile(means, [0.025, 0.975], axis=1)
        yield f"percentiles alone, {queries} queries", 0.95, (low <= MEAN) & (high >= MEAN)


def redraws(runs: int) -> Iterator[Row]:
    """The interval over queries and redraws of a benchmark's candidates, and that of one draw."""
    for draws, queries, deviation in ((3, 150, 0.01), (20, 110, 0.03), (20, 100, 0.05)):
        random = np.random.default_rng(77)
        both, one = list[bool](), list[bool]()
        for _ in range(runs):
            values = precisions(random, queries) + random.normal(0, deviation, (draws, 1))
            values = values + random.normal(0, 0.05, (draws, queries))
            for held, shown in ((both, values), (one, values[0])):
                _, low, high = interval(shown, seed=1)
                held.append(low <= MEAN <= high)
        place = f"{queries} queries, redraws that deviate by {100 * deviation:g} points"
        yield f"{draws} redraws, {place}", 0.95, np.array(both)
        yield f"one redraw, {place}", 0.95, np.array(one)


def few_shots(runs: int) -> Iterator[Row]:
    """F1 of two classes: 300 test papers, repetitions that are right more or less often; both are resampled."""
    for shots in (5, 10, 50):
        random, held = np.random.default_rng(shots), list[bool]()
        for _ in range(runs):
            truth, right = random.random(300) < 0.3, random.normal(0.8, 0.04, (shots, 1))
            predicted = np.where(random.random((shots, 300)) < right, truth, ~truth)
            times = np.concatenate(list(resampled(300, seed=1, resamples=1_000)))
            of_shots = np.array([_f1(truth, shot, times) for shot in predicted])
            drawn = np.concatenate(list(resampled(shots, seed=1, item="shots", resamples=1_000)))
            low, high = np.quantile((of_shots.T * drawn).sum(axis=1) / shots, [0.025, 0.975])
            rates = random.normal(0.8, 0.04, 10_000)
            expected = np.mean(2 * 0.3 * rates / (0.3 * rates + 0.3 + 0.7 * (1 - rates)))
            held.append(bool(low <= expected <= high))
        yield f"few-shot F1, 300 test papers, {shots} repetitions", 0.95, np.array(held)


def _f1(truth: np.ndarray, predicted: np.ndarray, times: np.ndarray) -> np.ndarray:
    both, sums = times @ (truth & predicted), times @ truth + times @ predicted
    return np.asarray(2 * both / np.maximum(sums, 1))


def groups_and_units(runs: int) -> Iterator[Row]:
    """Means over fields; 50 queries of 34 papers that agree within a paper, as CSFCube's; six pairs read together."""
    sizes = {"Art": 15, "Biology": 30, "Physics": 60}
    fields = {name: gaps(np.random.default_rng(queries), 4 * runs, queries) for name, queries in sizes.items()}
    means = mean_of_means(fields, seed=1)
    yield "mean over 3 fields", 0.95, (means.low <= 0) & (means.high >= 0)
    yield "test of the mean over 3 fields", 0.05, permutation_of_means(fields, seed=1, permutations=999) < 0.05
    papers, random = np.repeat(np.arange(34), [2] * 16 + [1] * 18), np.random.default_rng(8)
    shared = {"": random.normal(0, 0.15, (4 * runs, 34))[:, papers] + random.normal(0, 0.08, (4 * runs, 50))}
    for what, units in (("34 papers", {"": list(map(str, papers))}), ("50 queries", None)):
        found = mean_of_means(shared, seed=1, units=units)
        p_values = permutation_of_means(shared, seed=1, units=units, permutations=2_000)
        yield f"difference over {what}", 0.95, (found.low <= 0) & (found.high >= 0)
        yield f"test over {what}", 0.05, p_values < 0.05
    held, level, random = list[bool](), simultaneous(6), np.random.default_rng(60)
    for _ in range(runs):
        systems = 0.6 * precisions(random, 1, 60) + 0.4 * precisions(random, 4, 60)
        pairs = np.array([systems[a] - systems[b] for a in range(4) for b in range(a + 1, 4)])
        found_pairs = mean_of_means({"": pairs}, seed=1, level=level)
        held.append(bool(((found_pairs.low <= 0) & (found_pairs.high >= 0)).all()))
    yield "six pairs of four systems together, 60 queries", 0.95, np.array(held)


def rank_intervals(runs: int) -> Iterator[Row]:
    """Ranks of systems on 200 queries; differences of two means have a standard error of one point.

    Systems are all equal, equal in pairs, or all different, by steps of some standard errors. The intervals of a
    benchmark hold together, with all ranks that equal systems share; of means over four benchmarks, one by one, the
    mean of those is what must be inside.
    """
    setups = [("all equal", 1, 0.0), *(("pairs of equal ones", 2, step) for step in (0.1, 0.7, 3.0))]
    setups += [("all different", 1, step) for step in (0.1, 0.7, 1.5)]
    for systems in (5, 10, 30):
        for name, together, step in setups:
            random, held, means_held = np.random.default_rng(systems), list[bool](), list[np.ndarray]()
            means = np.asarray(0.01 * step * (np.arange(systems) // together), np.float64)
            _, first, last = ranks_with_ends(means, means != means[:, None])  # ranks that equal systems share
            for _ in range(runs // 8):
                ranked = []
                for _ in range(4):
                    values = means[:, None] + precisions(random, 200) + random.normal(0, 0.1, (systems, 200))
                    apart = all_pairs(values, seed=int(random.integers(1 << 30))) < 0.05
                    ranked.append(ranks_with_ends(values.mean(axis=1), apart))
                    held.append(bool(((ranked[-1][1] <= first) & (last <= ranked[-1][2])).all()))
                _, low, high = standings(np.array(ranked)).mean_rank
                means_held.append((low <= ranks(means)) & (ranks(means) <= high))
            steps = f"{name}{f', steps of {step:g} standard errors' if step else ''}"
            yield f"ranks of {systems} systems together, {steps}", 0.95, np.array(held)
            yield f"mean rank of {systems} systems, {steps}", 0.95, np.concatenate(means_held)


def boards(runs: int) -> Iterator[Row]:
    """Boards of eight systems, some of them equal, on 40 items, as ``mdcr audit`` makes them.

    The intervals of ranks hold together; a false difference is one between equal systems.
    """
    truth = np.array([0.6, 0.6, 0.57, 0.55, 0.55, 0.55, 0.5, 0.5])
    _, first, last = ranks_with_ends(truth, truth != truth[:, None])
    families, single = [1, 1, 2, 2, 3, 3, 4, 5, 7, 12], [1] * 40
    setups = [
        ("ten families of 1 to 12 items", families, 40, 0.0),
        ("collections of 10 and 30 items, 1% missing", single, 10, 0.01),
    ]
    for name, sizes, split, lacking in setups:
        random, held, false = np.random.default_rng(5), list[bool](), list[bool]()
        family = np.repeat(np.arange(len(sizes)), sizes)
        for _ in range(runs):
            values = truth[:, None] + random.normal(0, 0.2, 40) + random.normal(0, 0.05, (8, 40))
            values += random.normal(0, 0.05, (8, len(sizes)))[:, family]
            system, item = np.nonzero(random.random((8, 40)) >= lacking)
            frame = pl.DataFrame({"system": system.astype(str), "item": item, "value": values[system, item]})
            unit, group = pl.Series(family[item]), pl.Series(np.where(item < split, "a", "b"))
            made = board(frame.with_columns(unit=unit, group=group), seed=13)
            order = np.array(made.systems, np.int64)
            held.append(bool(((made.ranks[1] <= first[order]) & (last[order] <= made.ranks[2])).all()))
            false.append(bool((made.apart & (truth[order] == truth[order][:, None])).any()))
        yield f"ranks of a board together, {name}", 0.95, np.array(held)
        yield f"a false difference in a board, {name}", 0.05, np.array(false)


def csranks(runs: int) -> Iterator[Row]:
    """Ranks of ten systems on 200 queries: ours beside those of the R package csranks (Mogstad et al. 2024)."""
    random, truth, places = np.random.default_rng(3), np.repeat(np.arange(5) * 0.02, 2), dict[str, list[np.ndarray]]()
    _, first, last = ranks_with_ends(truth, truth != truth[:, None])
    simulated = [truth[:, None] + precisions(random, 200) + random.normal(0, 0.1, (10, 200)) for _ in range(runs)]
    for values in simulated:
        places.setdefault("ours", []).append(ranks_with_ends(values.mean(axis=1), all_pairs(values, seed=1) < 0.05)[1:])
    places["csranks"] = [*_by_r(simulated)]
    for name, found in places.items() if places["csranks"] else []:
        low, high = np.array(found).transpose(1, 0, 2)
        width = (high - low).mean()
        held = ((low <= first) & (last <= high)).all(axis=1)
        yield f"ranks of 10 systems by {name}, mean width {width:.2f} places", 0.95, held


def _by_r(boards_of: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the ends of the simultaneous intervals of csranks, ``[2, systems]``; nothing if R lacks the package."""
    if not shutil.which("Rscript"):
        return
    script = (
        "library(csranks); x <- as.matrix(read.csv(file('stdin'), header=FALSE)); k <- 10\n"
        "for (b in seq_len(nrow(x) / k)) { v <- t(x[(b - 1) * k + seq_len(k), ])\n"
        "r <- csranks(colMeans(v), cov(v) / nrow(v), simul=TRUE, seed=b)\n"
        "write(c(r$L, r$U), stdout(), ncolumns=2 * k) }"
    )
    text = "\n".join(",".join(map(repr, row)) for values in boards_of for row in values.tolist())
    done = subprocess.run(["Rscript", "-e", script], input=text, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        yield np.array(line.split(), np.float64).reshape(2, -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 runs in place of 500 (some: four times as many)")
    parser.add_argument("--only", default="", help="the name of one simulation, such as boards")
    options = parser.parse_args()
    runs, found = 100 if options.quick else 500, {}
    for simulate in (
        queries_and_samples,
        few_queries,
        redraws,
        few_shots,
        groups_and_units,
        rank_intervals,
        boards,
        csranks,
    ):
        for name, nominal, happened in simulate(runs) if options.only in ("", simulate.__name__) else ():
            rate = float(np.mean(happened))
            error = float(np.sqrt(rate * (1 - rate) / len(happened)))
            found[name] = {"nominal": nominal, "found": rate, "error": error}
            print(f"{name:75} {nominal:4.0%} {rate:6.1%} ± {error:.1%}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
