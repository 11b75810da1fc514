"""Coverage, bias and width of measures by judgements, by simulation on populations whose pairs are all judged.

    python bench/judging.py [CSFCUBE] [--runs 1000] [--quick]

Each run draws queries from a population with replacement (50 of CSFCube, 200 and 600 of the synthetic ones), then
judges a part of them by each design: 400 pairs (the default), or 20, 40 and 80 whole queries. The truth is the mean
over the population. Synthetic queries have 1 to 60 relevant papers, 30% of them none; citations either tell of
relevance (60% of the relevant papers, 2% of the others) or nothing (3% of all). CSFCube's systems are SPECTER, whose
rankings lie beside the collection, and weighted word overlap. Of two systems of equal skill, the share of intervals of
their difference without 0 is how often a difference of 0 is called one.
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

from pipeline.measure.judged import (
    Estimate,
    Sample,
    by_pairs,
    by_queries,
    draw_queries,
    greatest,
    inclusion,
    mean_of_pairs,
    stratify,
)
from pipeline.measure.measures import parse_measures

FACETS = ("background", "method", "result")
LINEAR, MEASURES = parse_measures("precision@10,dcg@10"), ("precision@10", "recall@20", "map", "ndcg@10")
RANKS, DEPTH, PAPERS = 20, 100, 400


class Judged(NamedTuple):
    """Pairs of queries and papers that are all judged.

    Attributes:
        query: query of each pair, rising, int64 ``[pairs]``.
        grade: int64 ``[pairs]``.
        cited: whether the query cites the paper, bool ``[pairs]``.
        ranks: ranks by two systems, int64 ``[2, pairs]``; 0: not retrieved.
    """

    query: np.ndarray
    grade: np.ndarray
    cited: np.ndarray
    ranks: np.ndarray

    def of_queries(self, queries: np.ndarray) -> Judged:
        """Return the pairs of some queries, which may repeat, with new numbers for the queries."""
        starts = np.searchsorted(self.query, np.arange(self.query[-1] + 2))
        parts = [np.arange(starts[query], starts[query + 1]) for query in queries]
        chosen = np.concatenate(parts)
        numbers = np.repeat(np.arange(len(queries)), list(map(len, parts)))
        return Judged(numbers, self.grade[chosen], self.cited[chosen], self.ranks[:, chosen])


def csfcube(folder: Path) -> Judged:
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


def synthetic(*, informative: bool, skills: tuple[float, float] = (1.0, 1.3), queries: int = 4_000) -> Judged:
    """Return the pairs of a synthetic population: the first ranks of both systems and the cited papers."""
    random, parts = np.random.default_rng(0), []
    for query in range(queries):
        count = 0 if random.random() < 0.3 else int(min(60, 1 + random.pareto(1.1) * 2))
        relevant = np.arange(PAPERS) < count
        cited = random.random(PAPERS) < (np.where(relevant, 0.6, 0.02) if informative else 0.03)
        scores = [skill * relevant + 0.4 * cited + random.normal(size=PAPERS) for skill in skills]
        ranks = np.stack([np.argsort(np.argsort(-score)) + 1 for score in scores])
        ranks[ranks > DEPTH] = 0
        chosen = ((ranks > 0) & (ranks <= RANKS)).any(axis=0) | cited
        parts.append((np.full(chosen.sum(), query), relevant[chosen].astype(int), cited[chosen], ranks[:, chosen]))
    query, grade, is_cited, ranks = zip(*parts, strict=True)
    return Judged(np.concatenate(query), np.concatenate(grade), np.concatenate(is_cited), np.concatenate(ranks, axis=1))


def measures_of(judged: Judged, grade: np.ndarray) -> np.ndarray:
    """Return :data:`MEASURES` by grades, float64 ``[systems, measures, queries]``; 0 where no paper is relevant."""
    queries, query, values = int(judged.query[-1]) + 1, judged.query, []

    def sums(numbers: np.ndarray) -> np.ndarray:
        return np.bincount(query, numbers, queries)

    relevant = grade > 0
    found = np.maximum(sums(relevant), 1)
    best = np.lexsort((-grade, query))
    place = np.empty(len(query), int)
    place[best] = np.arange(len(query)) - np.searchsorted(query, query)
    ideal = sums(grade / np.log2(place + 2) * (place < 10))
    for ranks in judged.ranks:
        order = np.lexsort((np.where(ranks > 0, ranks, DEPTH + PAPERS), query))
        before = np.cumsum(relevant[order])
        nth = np.empty(len(query))
        nth[order] = before - np.concatenate([[0], before])[np.searchsorted(query, query)]
        top, inverse = (ranks > 0) & (ranks <= 10), np.where(ranks > 0, 1 / np.maximum(ranks, 1), 0)
        gain = sums(grade * top / np.log2(np.maximum(ranks, 1) + 1))
        values.append([
            sums(relevant & top) / 10, sums(relevant & (ranks > 0) & (ranks <= 20)) / found,
            sums(relevant * nth * inverse) / found, np.divide(gain, ideal, out=np.zeros(queries), where=ideal > 0),
        ])  # fmt: skip
    return np.array(values)


def whole_queries(
    people: np.ndarray, citations: np.ndarray, count: int, seed: int
) -> Iterator[tuple[str, str, Estimate]]:
    """Yield (measure, what, estimate) from ``count`` whole queries; values ``[systems, measures, queries]``."""
    queries = people.shape[2]
    drawn = draw_queries(citations[:, 2].mean(axis=0), np.arange(queries), count, seed)
    known = np.where(drawn, people, np.nan)
    for number, measure in enumerate(MEASURES):
        for what, h, c in (
            ("a system", known[0, number], citations[0, number]),
            ("difference", known[1, number] - known[0, number], citations[1, number] - citations[0, number]),
        ):
            yield measure, what, by_queries(h, c[None], difference=what == "difference")


def single_pairs(judged: Judged, count: int, seed: int) -> Iterator[tuple[str, str, Estimate]]:
    """Yield (measure, what, estimate) from ``count`` pairs."""
    strata, random = stratify(judged.ranks, judged.cited, RANKS), np.random.default_rng(seed)
    probability = inclusion(strata, count)
    labelled = random.random(len(probability)) < probability
    grades = np.arange(1, int(judged.grade.max()) + 1)[:, None]
    relevance = np.where(labelled, (judged.grade >= grades).astype(np.float64), np.nan)
    stratum = np.unique(strata, axis=1, return_inverse=True)[1].ravel()
    queries = int(judged.query[-1]) + 1
    sample = Sample(queries, judged.query, stratum, probability, relevance, np.full_like(relevance, np.nan))
    one, other = by_pairs(sample, judged.ranks, LINEAR)
    for number, measure in enumerate(map(str, LINEAR)):
        most = greatest(LINEAR[number], int(grades.max()))
        yield measure, "a system", mean_of_pairs(one[number], most=most)
        yield measure, "difference", mean_of_pairs(other[number] - one[number], most=most, difference=True)


def simulate(
    population: Judged, queries: int, design: str, size: int, runs: int
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield (measure, what, figures): estimate and ends of the interval of each run, less the truth, ``[3, runs]``."""
    people, citations = (measures_of(population, of) for of in (population.grade, population.cited.astype(int)))
    truth = {(m, "a system"): people[0, i].mean() for i, m in enumerate(MEASURES)}
    truth |= {(m, "difference"): (people[1, i] - people[0, i]).mean() for i, m in enumerate(MEASURES)}
    if design == "pairs":
        everything = single_pairs(population, len(population.query), 0)
        truth = {(measure, what): of.value for measure, what, of in everything}
    random, found = np.random.default_rng(queries + size), dict[tuple[str, str], list[Estimate]]()
    for run in range(runs):
        drawn = random.integers(0, people.shape[2], queries)
        estimates = (
            whole_queries(people[:, :, drawn], citations[:, :, drawn], size, run)
            if design == "queries"
            else single_pairs(population.of_queries(drawn), size, run)
        )
        for measure, what, of in estimates:
            found.setdefault((measure, what), []).append(of)
    for key, all_runs in found.items():
        yield *key, np.array([(of.value, of.low, of.high) for of in all_runs]).T - truth[key]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="CSFCube")
    parser.add_argument("--runs", type=int, default=1000, help="runs of each row (default: 1000)")
    parser.add_argument("--quick", action="store_true", help="50 runs")
    options = parser.parse_args()
    runs, results = 50 if options.quick else options.runs, []
    populations = {
        "citations tell": synthetic(informative=True),
        "citations say nothing": synthetic(informative=False),
        "equal systems": synthetic(informative=True, skills=(1.0, 1.0)),
    }
    if options.folder:
        populations = {"CSFCube": csfcube(options.folder)} | populations
    print("population | queries | design | labels of | measure | of | bias | coverage | width")
    for name, population in populations.items():
        csf = name == "CSFCube"
        for queries in (50,) if csf else (200, 600):
            for design, size in [("pairs", 400), *(("queries", n) for n in (20, 40, 80) if n <= queries)]:
                for measure, what, (error, low, high) in simulate(population, queries, design, size, runs):
                    bias, noise = float(np.mean(error)), float(np.std(error) / np.sqrt(runs))
                    coverage, width = float(((low <= 0) & (high >= 0)).mean()), float(np.nanmean(high - low))
                    texts = f"{100 * bias:+.2f} ({100 * noise:.2f})", f"{coverage:.1%}", f"{100 * width:.1f}"
                    print(name, queries, design, size, measure, what, *texts, sep=" | ", flush=True)
                    results.append([name, queries, design, size, measure, what, bias, noise, coverage, width])
    print(json.dumps(results))


if __name__ == "__main__":
    main()
