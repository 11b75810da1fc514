"""Coverage, bias and width of measures by judgements, by simulation on CSFCube, whose pools are judged in full.

    python bench/judging.py FOLDER [--quick] [--queries 200]

The judged candidates of all 50 queries (paper and facet) are the population. Each run draws queries from it with
replacement, then 5, 10 or 20% of their pairs, and estimates two systems and their difference: SPECTER, whose rankings
lie beside the collection, and weighted word overlap of titles and abstracts. A model, where there is one, gives a
random grade to a fifth of all pairs and the true one to the others.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from pipeline.measure.design import Design, estimate
from pipeline.measure.judged import Sample, inclusion, judged_values, stratify
from pipeline.measure.measures import parse_measures

FACETS = ("background", "method", "result")
SYSTEMS = ("specter", "overlap")
MEASURES = parse_measures("precision@20,recall@20,map,ndcg@20")
SHARES = (0.05, 0.1, 0.2)
_GRADES = 3
_FLIPPED = 0.2


class Judged(NamedTuple):
    """Pairs of queries and papers that are all judged.

    Attributes:
        query: query of each pair, rising, int64 ``[pairs]``.
        grade: int64 ``[pairs]``.
        cited: whether the query cites the paper, bool ``[pairs]``.
        ranks: ranks by :data:`SYSTEMS`, int64 ``[2, pairs]``.
    """

    query: np.ndarray
    grade: np.ndarray
    cited: np.ndarray
    ranks: np.ndarray

    def of_queries(self, queries: np.ndarray) -> Judged:
        """Return the pairs of some queries, which may repeat, with new numbers for the queries."""
        parts = [np.flatnonzero(self.query == query) for query in queries]
        chosen = np.concatenate(parts)
        numbers = np.repeat(np.arange(len(queries)), list(map(len, parts)))
        return Judged(numbers, self.grade[chosen], self.cited[chosen], self.ranks[:, chosen])


def read(folder: Path) -> Judged:
    """Return the pairs of CSFCube in a folder."""
    with gzip.open(folder / "docs.jsonl.gz", "rt") as lines:
        documents = [json.loads(line) for line in lines]
    texts = {str(document["corpusid"]): " ".join([document["title"], *document["sents"]]) for document in documents}
    words = {paper: set(re.findall(r"[a-z]{3,}", text.lower())) for paper, text in texts.items()}
    counts = Counter(word for of_paper in words.values() for word in of_paper)
    cited = {tuple(line.split("\t")) for line in (folder / "cited_pairs.tsv").read_text().splitlines()}
    rows, queries = [], 0
    for facet in FACETS:
        annotated = json.loads((folder / f"test-pid2anns-csfcube-{facet}.json").read_text())
        ranked = json.loads(
            (folder / "sample_ranked_pools" / f"test-pid2pool-csfcube-specter-{facet}-ranked.json").read_text()
        )
        for query, lists in annotated.items():
            of_specter = {paper: rank for rank, (paper, _) in enumerate(ranked[query], 1)}
            grades = dict(zip(lists["cands"], lists["relevance_adju"], strict=True))
            shared = {
                paper: -sum(1 / counts[word] for word in words.get(query, set()) & words.get(paper, set()))
                for paper in grades
            }
            by_overlap = {paper: rank for rank, paper in enumerate(sorted(grades, key=lambda p: (shared[p], p)), 1)}
            rows += [
                (queries, grade, (query, paper) in cited, of_specter.get(paper, 0), by_overlap[paper])
                for paper, grade in grades.items()
            ]
            queries += 1
    query, grade, is_cited, *ranks = map(np.array, zip(*rows, strict=True))
    return Judged(query, grade, is_cited, np.stack(ranks))


def shares(grade: np.ndarray) -> np.ndarray:
    """Return whether grades are at least 1, 2, ...: float64 ``[grades, pairs]``."""
    return (grade >= np.arange(1, _GRADES + 1)[:, None]).astype(np.float64)


def values_of(judged: Judged, share: float, random: np.random.Generator, *, model: bool) -> np.ndarray:
    """Return estimates from a draw of a share of the pairs, float64 ``[systems, measures, queries]``."""
    pairs, strata = len(judged.query), stratify(judged.ranks, judged.cited, 20)
    probability = inclusion(strata, round(share * pairs))
    drawn = random.random(pairs) < probability
    machine = np.full((_GRADES, pairs), np.nan)
    if model:
        flipped = random.random(pairs) < _FLIPPED
        machine = shares(np.where(flipped, random.integers(0, _GRADES + 1, pairs), judged.grade))
    stratum = np.unique(strata, axis=1, return_inverse=True)[1].ravel()
    relevance = np.where(drawn, shares(judged.grade), np.nan)
    sample = Sample(int(judged.query[-1]) + 1, judged.query, stratum, probability, relevance, machine)
    return judged_values(sample, judged.ranks, MEASURES)


def frame_of(values: np.ndarray) -> pl.DataFrame:
    """Return values ``[systems, measures, queries]`` as a frame."""
    system, measure, query = (axis.ravel() for axis in np.indices(values.shape))
    frame = pl.DataFrame({"query": query, "value": values.ravel()})
    return frame.with_columns(
        system=pl.Series(SYSTEMS).gather(system), measure=pl.Series(list(map(str, MEASURES))).gather(measure)
    )


def simulate(
    population: Judged, share: float, runs: int, *, model: bool, size: int = 50
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield (measure, what, figures): estimate and ends of the interval of each run, less the truth, ``[3, runs]``."""
    queries, design = int(population.query[-1]) + 1, Design(row=("system",))
    truth = values_of(population, 1, np.random.default_rng(0), model=False).mean(axis=2)
    random, found = np.random.default_rng(round(1000 * share) + model), []
    for run in range(runs):
        drawn = population.of_queries(random.integers(0, queries, size))
        values = frame_of(values_of(drawn, share, random, model=model))
        found.append(estimate(values, design, run, (SYSTEMS[0],)))
    ends = ["value", "low", "high"], [f"difference{end}" for end in ("", "_low", "_high")]
    for number, measure in enumerate(map(str, MEASURES)):
        for what, system, columns in ((SYSTEMS[0], SYSTEMS[0], ends[0]), ("difference", SYSTEMS[1], ends[1])):
            figures = [of_run.filter(system=system, measure=measure).select(columns).row(0) for of_run in found]
            expected = truth[0, number] if what == SYSTEMS[0] else truth[1, number] - truth[0, number]
            yield measure, what, np.array(figures).T - expected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="CSFCube")
    parser.add_argument("--quick", action="store_true", help="100 runs in place of 500")
    parser.add_argument("--queries", type=int, default=50, help="queries of a run (default: 50)")
    options = parser.parse_args()
    population, results = read(options.folder), []
    print(f"{'drawn':6} {'labels':16} {'of':11} {'measure':13} {'bias':>6} {'coverage':>9} {'width':>6}")
    for share in SHARES:
        for model in (False, True):
            for measure, what, (error, low, high) in simulate(
                population, share, 100 if options.quick else 500, model=model, size=options.queries
            ):
                labels = "people and model" if model else "people"
                figures = error.mean(), ((low <= 0) & (high >= 0)).mean(), (high - low).mean()
                bias, coverage, width = map(float, figures)
                place = f"{share:6.0%} {labels:16} {what:11} {measure:13}"
                print(f"{place} {100 * bias:+6.2f} {coverage:9.1%} {100 * width:6.1f}", flush=True)
                results.append([share, labels, what, measure, bias, coverage, width])
    print(json.dumps(results))


if __name__ == "__main__":
    main()
