"""Stage ``benchmark``: the files of a home-built MDCR benchmark, from field-level pools and rankings of them."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.studies.mdcr.candidates import GRAPH, Candidates, CandidateSampler, Rows, SamplingConfig
from pipeline.studies.mdcr.layout import TRUE, file_names

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
    corpus, drawing = Corpus(inputs["corpus"]), config.drawing
    pools = {place: Pool(inputs["/".join(place)], corpus) for place in places}
    sampler = CandidateSampler(pools[places[0]], drawing)
    tops = {
        place: {name: sampler.top_negatives(inputs["/".join([*place, name])], pool) for name in config.systems}
        for place, pool in pools.items()
    }
    tested = [top for (split, _), top in tops.items() if split == "test"]
    jaccard = mean_jaccard({name: [rows for top in tested for rows in top[name]] for name in config.systems})
    chosen = config.model_negatives or least_alike(jaccard, config.systems, NEGATIVE_SYSTEMS)
    test_rows = np.concatenate([pool.query_rows for (split, _), pool in pools.items() if split == "test"])
    counts: Counter[str] = Counter()
    with Progress(len(places), "benchmark", "fields") as progress:
        for split, group in itertools.groupby(places, key=lambda place: place[0]):
            lists: dict[str, dict[int, Candidates]] = {}
            for place in group:
                pool, field, of_chosen = pools[place], place[1], {name: tops[place][name] for name in chosen}
                kept = np.full(len(pool.query_rows), split == "test") | ~np.isin(pool.query_rows, test_rows)
                if not kept.any():
                    raise InputError(
                        f"every validation query of {field} is a test query of another field", "Ask for more queries"
                    )
                drawn = sampler.draw(pool, split, of_chosen, sampler.most_cited(field), drawing.redraw)
                lists[field] = dict(itertools.compress(zip(pool.query_rows.tolist(), drawn, strict=True), kept))
                counts.update(_counted(split, pool, list(lists[field].values()), drawing))
                progress.add(1)
            counts[f"{split}_papers"] = _write(out, split, corpus, lists)
    return {
        **dict(counts),
        "left_out_fields": len(config.left_out),
        "fields_left_out": dict(config.left_out),
        "model_negatives": list(chosen),
        "jaccard": {f"{first}|{second}": round(value, 6) for (first, second), value in jaccard.items()},
    }


def mean_jaccard(tops: Mapping[str, Sequence[Rows]]) -> dict[tuple[str, str], float]:
    """Return the Jaccard index of each two systems' top negatives of each query, mean over queries."""
    means = {}
    for first, second in itertools.combinations(tops, 2):
        values = []
        for rows, others in zip(tops[first], tops[second], strict=True):
            union = len(np.union1d(rows, others))
            values.append((len(rows) + len(others) - union) / union if union else 1.0)
        means[first, second] = float(np.mean(values))
    return means


def least_alike(jaccard: Mapping[tuple[str, str], float], systems: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the systems whose mean Jaccard index with the others is lowest, in the order of ``systems``.

    Of equal ones the first by name is chosen, whatever their order.
    """
    means = {system: float(np.mean([value for pair, value in jaccard.items() if system in pair])) for system in systems}
    lowest = sorted(systems, key=lambda system: (round(means[system], 12), system))[:count]
    return tuple(system for system in systems if system in lowest)


def _counted(split: str, pool: Pool, drawn: Sequence[Candidates], drawing: SamplingConfig) -> Counter[str]:
    """Return what is counted of the queries of one field."""

    def fewer(names: Sequence[str], wanted: int) -> int:
        return sum(any(len(by_type[name]) < wanted for name in names) for by_type in drawn)

    positives = np.concatenate([by_type[TRUE] for by_type in drawn])
    younger = pool.corpus.attributes["year"][positives] > pool.artifact.manifest.config["year"]
    counts = {
        "fields": 1,
        "queries": len(drawn),
        "pairs": sum(len(rows) for by_type in drawn for rows in by_type.values()),
        "queries_with_fewer_positives": fewer([TRUE], drawing.positives),
        "queries_with_fewer_graph_candidates": fewer([GRAPH], drawing.negatives),
        "queries_with_fewer_negatives": fewer([name for name in drawn[0] if name != TRUE], drawing.negatives),
        "positives_after_query_year": int(np.count_nonzero(younger)),  # protocol 2 keeps them
    }
    if split != "test":
        counts["queries_left_out_as_test_queries"] = len(pool.query_rows) - len(drawn)
    return Counter({f"{split}_{name}": count for name, count in counts.items()})


def _write(out: Workdir, split: str, corpus: Corpus, lists: Mapping[str, Mapping[int, Candidates]]) -> int:
    """Write the two files of a split, and return how many papers it has."""
    listed = [papers for queries in lists.values() for by_type in queries.values() for papers in by_type.values()]
    rows = np.unique(np.concatenate([*listed, *(list(queries) for queries in lists.values())])).astype(np.int64)
    ids = np.array(corpus.ids(rows), object)

    def named(papers: Rows | list[int]) -> list[str]:
        names: list[str] = ids[np.searchsorted(rows, papers)].tolist()
        return names

    content = {
        field: {
            query: {name: named(papers) for name, papers in by_type.items()}
            for query, by_type in zip(named(list(queries)), queries.values(), strict=True)
        }
        for field, queries in lists.items()
    }
    lists_name, data_name = file_names(split)
    with out.file(lists_name) as (path, _):
        path.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
    with out.file(data_name) as (path, _), path.open("w", encoding="utf-8") as file:
        for start in range(0, len(rows), _BLOCK):
            texts = (text for part in corpus.texts(rows[start : start + _BLOCK]) for text in part)
            for paper_id, text in zip(ids[start : start + _BLOCK], texts, strict=True):
                paper = {"paper_id": paper_id, "title": text.title, "abstract": text.abstract}
                file.write(json.dumps(paper, ensure_ascii=False) + "\n")
    return len(rows)
