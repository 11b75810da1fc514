"""Stage ``benchmark``: the files of a home-built MDCR benchmark, from field-level pools and rankings of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.corpus.pool import Pool
from pipeline.corpus.prefilter import PrefilterConfig
from pipeline.corpus.reader import Corpus
from pipeline.studies.mdcr.candidates import GRAPH, CandidateSampler, Rows, SamplingConfig, least_alike, mean_jaccard
from pipeline.studies.mdcr.layout import TRUE, file_names, write_lists, write_paper

FOLDER = "corpora/benchmarks"
NEGATIVE_SYSTEMS = 3

_BLOCK = 65_536
"""Papers whose texts are held at once."""


@dataclass(frozen=True)
class BenchmarkConfig:
    """What decides a benchmark beside its pools and rankings.

    Attributes:
        drawing: how candidates are drawn.
        systems: whose rankings are compared, in order.
        model_negatives: whose top negatives are drawn from; empty: the three least alike on the test queries.
        left_out: fields that have too few papers, each with the reason.
    """

    drawing: SamplingConfig
    systems: tuple[str, ...]
    model_negatives: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        unknown = [name for name in self.model_negatives if name not in self.systems]
        if unknown:
            raise InputError(
                f"model_negatives must be among the systems, got {unknown[0]}",
                f"Add it, or write --set=model_negatives= for the {NEGATIVE_SYSTEMS} least alike",
            )
        if not self.model_negatives and len(self.systems) < NEGATIVE_SYSTEMS:
            raise InputError(
                f"choosing {NEGATIVE_SYSTEMS} systems takes as many or more, got {len(self.systems)}",
                "Name more systems, or set model_negatives",
            )


@dataclass(frozen=True)
class FieldRankings:
    """One field of one split, ``val`` or ``test``: its field-level pool, and the rankings of that pool by system."""

    split: str
    field: str
    pool: Task
    rankings: Mapping[str, Task]


def benchmark_task(corpus: Artifact, parts: Sequence[FieldRankings], config: BenchmarkConfig) -> Task:
    """Return the task that builds a benchmark.

    Its artifact has the two files of each split in the published layout. A validation query of one field that is a test
    query of another is left out and counted.
    """
    inputs: dict[str, Task | Artifact] = {"corpus": corpus}
    for part in parts:
        inputs[f"{part.split}/{part.field}"] = part.pool
        inputs |= {f"{part.split}/{part.field}/{system}": ranking for system, ranking in part.rankings.items()}
    places = [(part.split, part.field) for part in parts]

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        return _build(inputs, places, config, out)

    return Task("benchmark", 1, FOLDER, f"mdcr-{corpus.manifest.slug}", config, inputs, run)


def _build(inputs: Inputs, places: Sequence[tuple[str, str]], config: BenchmarkConfig, out: Workdir) -> Counts:
    corpus = Corpus(inputs["corpus"])
    pools = {place: Pool(inputs["/".join(place)], corpus) for place in places}
    sampler = sampler_of(corpus, pools.values(), config.drawing)
    tops = {
        place: {name: sampler.top_negatives(inputs["/".join([*place, name])], pool) for name in config.systems}
        for place, pool in pools.items()
    }
    tested = [own for (split, _), own in tops.items() if split == "test"]
    jaccard = mean_jaccard({name: [rows for own in tested for rows in own[name]] for name in config.systems})
    chosen = config.model_negatives or least_alike(jaccard, config.systems, NEGATIVE_SYSTEMS)
    counts: Counter[str] = Counter()
    test_rows = np.concatenate([pool.query_rows for (split, _), pool in pools.items() if split == "test"])
    with Progress(len(places), "benchmark", "fields") as progress:
        for split in dict.fromkeys(split for split, _ in places):
            lists: dict[str, Any] = {}
            used: list[Rows] = []
            for place in (place for place in places if place[0] == split):
                pool, own = pools[place], {name: tops[place][name] for name in chosen}
                kept = np.ones(len(pool.query_rows), bool) if split == "test" else ~np.isin(pool.query_rows, test_rows)
                every = sampler.draw(pool, split, own, sampler.most_cited(place[1]))
                drawn = list(itertools.compress(every, kept))
                ids = itertools.compress(pool.query_ids(), kept)
                lists[place[1]] = dict(zip(ids, _named(corpus, drawn), strict=True))
                used += [pool.query_rows[kept].astype(np.int64), *(rows for each in drawn for rows in each.values())]
                counts.update(_counted(split, drawn, config.drawing))
                if split != "test":
                    counts[f"{split}_queries_left_out_as_test_queries"] += int(np.count_nonzero(~kept))
                counts[f"{split}_positives_after_query_year"] += _younger(corpus, pool, drawn)
                progress.add(1)
            _write(out, split, corpus, lists, np.unique(np.concatenate(used)), counts)
    return {
        **dict(counts),
        "left_out_fields": len(config.left_out),
        "fields_left_out": dict(config.left_out),
        "model_negatives": list(chosen),
        "jaccard": {f"{first}|{second}": round(value, 6) for (first, second), value in jaccard.items()},
    }


def sampler_of(corpus: Corpus, pools: Iterable[Pool], drawing: SamplingConfig) -> CandidateSampler:
    """Return the sampler for pools, which have one query year and one prefilter."""
    configs = [pool.artifact.manifest.config for pool in pools]
    return CandidateSampler(corpus, PrefilterConfig(**configs[0]["prefilter"]), configs[0]["year"], drawing)


def _younger(corpus: Corpus, pool: Pool, drawn: Sequence[Mapping[str, Rows]]) -> int:
    """Return how many positives are younger than the queries; protocol 2 keeps them."""
    year = corpus.attributes["year"]
    return sum(int(np.count_nonzero(year[each[TRUE]] > pool.artifact.manifest.config["year"])) for each in drawn)


def _named(corpus: Corpus, drawn: Sequence[Mapping[str, Rows]]) -> list[dict[str, list[str]]]:
    """Return candidates as ids, with one look-up for all queries of a field."""
    rows = np.unique(np.concatenate([rows for each in drawn for rows in each.values()]))
    ids = np.array(corpus.ids(rows), object)
    return [{name: ids[np.searchsorted(rows, own)].tolist() for name, own in each.items()} for each in drawn]


def _counted(split: str, drawn: Sequence[Mapping[str, Rows]], drawing: SamplingConfig) -> Counter[str]:
    """Return what is counted of the queries of one field."""
    negatives = [name for name in drawn[0] if name != TRUE]
    return Counter(
        {
            f"{split}_fields": 1,
            f"{split}_queries": len(drawn),
            f"{split}_pairs": sum(len(rows) for each in drawn for rows in each.values()),
            f"{split}_queries_with_fewer_positives": sum(len(each[TRUE]) < drawing.positives for each in drawn),
            f"{split}_queries_with_fewer_graph_candidates": sum(len(each[GRAPH]) < drawing.negatives for each in drawn),
            f"{split}_queries_with_fewer_negatives": sum(
                any(len(each[name]) < drawing.negatives for name in negatives) for each in drawn
            ),
        }
    )


def _write(out: Workdir, split: str, corpus: Corpus, lists: Any, rows: Rows, counts: Counter[str]) -> None:
    """Write the two files of a split."""
    lists_name, data_name = file_names(split)
    with out.file(lists_name) as (path, _):
        path.write_text(write_lists(lists), encoding="utf-8")
    with out.file(data_name) as (path, _), path.open("w", encoding="utf-8") as file:
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            texts = (text for part in corpus.texts(block) for text in part)
            for paper_id, text in zip(corpus.ids(block), texts, strict=True):
                file.write(write_paper(paper_id, text.title, text.abstract))
    counts[f"{split}_papers"] += len(rows)
