"""Measures of systems by the labels of a draw (stage ``judged``), and what labels will tell, before there are any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.schema import JUDGEMENTS, SCORES
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import JUDGED
from pipeline.corpus.pool import Pool
from pipeline.measure.engines import evaluate_all
from pipeline.measure.inputs import Qrels, RankedRun, ranks_of
from pipeline.measure.judged import (
    Price,
    Sample,
    by_pairs,
    check_measures,
    price_of_pairs,
    price_of_queries,
    stratify,
    weights_of,
)
from pipeline.measure.measures import parse_measures
from pipeline.measure.resampling import Floats
from pipeline.stages.judge import by_citations, labels_of, pairs_of, runs_of
from pipeline.stages.ranking_file import open_pool
from pipeline.stages.score import score_table

VALUES, BY_CITATIONS, BY_MODEL = "values.arrow", "citations.arrow", "model.arrow"
"""Files of stage ``judged``: measures by people, and of all queries by citations and, if one judged, by a model.

Those by people are estimates for all queries (design ``pairs``), or measures of the judged queries (``queries``)."""

MEASURES = {"pairs": "precision@10,dcg@10,judged@10", "queries": "precision@10,recall@20,map,ndcg@10"}
"""Measures of a design by default."""


def prices(draw: Artifact, pool: Pool, runs: Sequence[RankedRun], size: Mapping[str, int]) -> pl.DataFrame:
    """Return what each design would give for each of its measures, before labelling, for a draw of any design.

    ``size`` is the number of pairs and of queries that would be judged, by design.

    Returns:
        Columns ``design``, ``measure``, ``labels``, the expected half-widths ``system`` (the widest) and ``difference``
        (of the first two systems; null if there is one) as fractions, and ``needed``: labels for a half-width of 2
        points of the difference, or of the system; null: all are too few.
    """
    pairs = pairs_of(draw)
    query, row = pairs["query"].to_numpy().astype(np.int64), pairs["row"].to_numpy()
    ranks, cited = np.stack([ranks_of(ranked, query, row) for ranked in runs]), pairs["cited"].to_numpy()
    strata, relevance = stratify(ranks, cited, int(draw.manifest.config["ranks"])), cited.astype(np.float64)[None]
    queries = len(pool.query_rows)
    sample = Sample(queries, query, strata[1], np.ones(len(query)), relevance, np.full_like(relevance, np.nan))
    rows = []
    for design, names in MEASURES.items():
        labels = {"pairs": 1.0, "queries": len(pairs) / queries}[design]
        for measure in (measure for measure in parse_measures(names) if measure.name != "judged"):
            values = by_citations(pool, runs, [measure])[:, 0]
            weights = np.stack([weights_of(measure, of_run) for of_run in ranks])

            def price(of: Floats, weight: Floats, design: str = design) -> Price:
                if design == "queries":
                    return price_of_queries(of, size["queries"])
                return price_of_pairs(of, sample, strata, weight, size["pairs"])

            system = max(map(price, values, weights), key=lambda one: one.half_width)
            other = price(values[0] - values[1], weights[0] - weights[1]) if len(runs) > 1 else None
            needed = (other or system).needed
            rows.append({
                "design": design, "measure": str(measure), "labels": round(size[design] * labels),
                "system": system.half_width, "difference": other and other.half_width,
                "needed": needed and round(needed * labels),
            })  # fmt: skip
    return pl.DataFrame(rows)


def sample_of(draw: Artifact, labels: Artifact, queries: int) -> Sample:
    """Return the pairs of a draw with their labels.

    Pairs that were drawn and left without a label count as missing at random within their stratum: the probability of
    the labelled ones is multiplied by their share.
    """
    pairs, found, grades = pairs_of(draw), labels_of(labels), int(draw.manifest.config["grades"])
    of_grades = [(pl.col("grade") >= grade).mean().alias(f"grade-{grade}") for grade in range(1, grades + 1)]

    def shares(*, machine: bool) -> npt.NDArray[np.float64]:
        of_pairs = found.filter(machine=machine).group_by("query", "row").agg(of_grades)
        joined = pairs.join(of_pairs, on=["query", "row"], how="left", maintain_order="left")
        levels = joined.select(pl.col("^grade-.*$").cast(pl.Float64).fill_null(np.nan))
        return np.ascontiguousarray(levels.to_numpy().T)

    relevance, machine = shares(machine=False), shares(machine=True)
    of_model = ~np.isnan(machine[0])
    if of_model.any() and not (of_model & np.isnan(relevance[0])).any():
        raise InputError("the model must label more pairs than people did", "Let it judge all of machine.jsonl")
    stratum = pairs.select(pl.struct("cited", "band", "system").rank("dense") - 1).to_series().to_numpy()
    stratum, drawn = stratum.astype(np.int64), pairs["drawn"].to_numpy()
    has, given = (np.bincount(stratum, weights=of) for of in (drawn & ~np.isnan(relevance[0]), drawn))
    answered = np.divide(has, given, out=np.ones_like(has), where=given > 0)[stratum]
    query, probability = pairs["query"].to_numpy().astype(np.int64), pairs["probability"].to_numpy() * answered
    return Sample(queries, query, stratum, probability, relevance, machine)


def qrels_of(pairs: pl.DataFrame, labels: pl.DataFrame, pool: Pool, *, machine: bool) -> tuple[Qrels, Floats]:
    """Return the labels of people or of a model as qrels, and the share of each query's pairs that have one.

    A pair of several annotators has their median grade, the lower one of two.
    """
    grade = (pl.col("grade").sort().gather((pl.len() - 1) // 2)).first().alias("grade")
    graded = labels.filter(machine=machine).group_by("query", "row").agg(grade).sort("query", "row")
    table = graded.select(JUDGEMENTS.names).to_arrow().cast(JUDGEMENTS)
    has, could = (np.bincount(of["query"], minlength=len(pool.query_rows)) for of in (graded, pairs))
    return Qrels.from_table(table, pool), np.divide(has, could, out=np.zeros(len(has)), where=could > 0)


@dataclass(frozen=True)
class JudgedConfig:
    """Settings of stage ``judged``: the design, names of the systems in order of the rankings, and measures."""

    design: str
    systems: tuple[str, ...]
    measures: tuple[str, ...]


def judged_task(
    corpus: Artifact, pool: Task, draw: Artifact, labels: Artifact, rankings: Mapping[str, Task], measures: str | None
) -> Task:
    """Return the task that measures systems by the labels of a draw and by citations.

    ``rankings`` are by the names of their systems; ``measures``, with commas, are those that the design of the draw can
    give; None: those of :data:`MEASURES`.
    """
    design = str(draw.manifest.config["design"])
    parsed = parse_measures(measures or MEASURES[design])
    check_measures(parsed, design)
    config = JudgedConfig(design, tuple(rankings), tuple(map(str, parsed)))

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened_pool, pairs, found = open_pool(inputs), pairs_of(inputs["draw"]), labels_of(inputs["labels"])
        runs, queries, has_model = runs_of(inputs, opened_pool), len(opened_pool.query_rows), found["machine"].any()
        query, row = pairs["query"].to_numpy().astype(np.int64), pairs["row"].to_numpy()
        ranks, counts = np.stack([ranks_of(ranked, query, row) for ranked in runs]), dict[str, int]()
        tables = {BY_CITATIONS: by_citations(opened_pool, runs, parsed)}
        if design == "pairs":
            sample = sample_of(inputs["draw"], inputs["labels"], queries)
            tables[VALUES] = by_pairs(sample, ranks, parsed)
        else:
            qrels, share = qrels_of(pairs, found, opened_pool, machine=False)
            counts = {
                "queries_judged": int((share == 1).sum()),
                "queries_in_part": int(((share > 0) & (share < 1)).sum()),
            }
            if not counts["queries_judged"]:
                raise InputError("no query has labels of all its pairs", "Fill in every row of some queries")
            values = np.nan_to_num(np.stack([evaluate_all(qrels, ranked, parsed) for ranked in runs]))
            tables[VALUES] = np.where(share == 1, values, np.nan)
            if has_model:
                qrels, share = qrels_of(pairs, found, opened_pool, machine=True)
                if share.min() < 1:
                    raise InputError(
                        f"the labels of a model must be of all pairs, got {(share < 1).sum():,} queries without some",
                        "Let it judge all of machine.jsonl",
                    )
                tables[BY_MODEL] = np.nan_to_num(np.stack([evaluate_all(qrels, ranked, parsed) for ranked in runs]))
        for name, array in tables.items():
            out.arrow(name, score_table(opened_pool, config.systems, config.measures, array), SCORES)
        top = int(inputs["draw"].manifest.config["ranks"])
        first = [int(np.minimum(ranked.retrieved(), top).sum()) for ranked in runs]
        outside = first - ((ranks > 0) & (ranks <= top)).sum(axis=1)
        by_people = found.filter(~pl.col("machine"))
        return counts | {
            "queries": queries,
            "grades": int(inputs["draw"].manifest.config["grades"]),
            "pairs": len(pairs),
            "judged": by_people.select("query", "row").n_unique(),
            "by_model": len(found) - len(by_people),
            "annotators": inputs["labels"].manifest.counts["annotators"],
            "ranks": top,
            "outside": dict(zip(rankings, outside.tolist(), strict=True)),
        }

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, "draw": draw, "labels": labels}
    inputs |= {f"ranking-{number}": ranking for number, ranking in enumerate(rankings.values())}
    return Task("judged", 2, JUDGED, f"judged-{pool.slug}", config, inputs, run)
