"""Stage ``benchmark``: draw positives and typed negatives for each query (Medić & Šnajder 2022, section 4).

Candidates are drawn from field-level pools and from rankings of these pools.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.studies import kit
from pipeline.studies.kit import Corpus, InputError, Mask, Pool, Task, pack
from pipeline.studies.mdcr.lists import GRAPH, MOST_CITED, RANDOM, TRUE, Rows, file_names

Candidates = Mapping[str, Rows]
"""Rows of the candidates of a query, by type."""

NEGATIVE_SYSTEMS = 3

_BLOCK = 65_536
"""Number of papers whose texts are in memory at once."""


@dataclass(frozen=True)
class SamplingConfig:
    """How candidates are drawn: up to ``positives``, and ``negatives`` of each other type from the ``top`` of its list.

    ``redraw`` is the number of the draw of negatives; positives are the same in all draws.
    """

    seed: int = 13
    positives: int = 5
    negatives: int = 10
    top: int = 200
    redraw: int = 0


class CandidateSampler:
    """Draws the candidates of queries of one corpus; negatives are not later than the year of the queries.

    ``pool`` is any of the pools: all share its corpus, kit.prefilter and year of queries.
    """

    def __init__(self, pool: Pool, sampling: SamplingConfig) -> None:
        config, attributes = pool.artifact.manifest.config, pool.corpus.attributes
        rules = kit.PrefilterConfig(**config["prefilter"])
        early = (attributes["year"] <= config["year"]) & (attributes["year"] != kit.NO_YEAR)
        self._corpus, self._sampling = pool.corpus, sampling
        self._eligible: Mask = kit.has_text(attributes, rules) & early
        self._prefiltered = np.flatnonzero(kit.prefilter(attributes, rules)[0] & early)

    def top_negatives(self, ranking: kit.Artifact, pool: Pool) -> list[Rows]:
        """Return the highest-ranked eligible candidates of each query that it does not cite, in order of rank."""
        queries = len(pool.query_rows)
        ranked, qrels = kit.read_ranking(ranking), kit.Qrels.from_table(pool.qrels, queries)
        cited = pack(*self._corpus.outgoing.of_many(pool.query_rows))
        positive = pack(kit.query_of(qrels.offsets), qrels.rows)
        is_negative = self._eligible[ranked.row]
        is_negative &= ~np.isin(pack(ranked.query, ranked.row), np.concatenate([cited, positive]))
        rows = ranked.row[is_negative].astype(np.int64)
        starts = np.searchsorted(ranked.query[is_negative], np.arange(queries + 1))
        return [rows[start : min(end, start + self._sampling.top)] for start, end in itertools.pairwise(starts)]

    def draw(self, pool: Pool, split: str, tops: Mapping[str, Sequence[Rows]]) -> Iterator[Candidates]:
        """Yield the candidates of each query of a pool by type, in order: true, the systems, graph, most cited, random.

        A query has each paper at most once. No negative is cited by the query, is the query or has its title. The seed
        depends on field and ``split``; ``tops`` has the lists of :meth:`top_negatives` by system.
        """
        qrels = kit.Qrels.from_table(pool.qrels, pool)
        field, sampling = pool.artifact.manifest.config["field"], self._sampling
        of_field = (self._corpus.attributes["fields"] >> np.uint32(kit.FIELD_BIT[field])) & np.uint32(1) == 1
        popular = np.flatnonzero(of_field & self._eligible)
        popular = popular[np.lexsort((popular, -self._corpus.citations[popular]))[: sampling.top]]  # by citations, row
        for position, (row, query_id) in enumerate(zip(pool.query_rows.tolist(), pool.query_ids(), strict=True)):
            item = f"{split}|{field}|{query_id}"
            positives = qrels.rows[qrels.offsets[position] : qrels.offsets[position + 1]].astype(np.int64)
            chosen = kit.generator(sampling.seed, "mdcr-true", item).permutation(positives)[: sampling.positives]
            rng = kit.generator(sampling.seed, "mdcr", f"{item}|{sampling.redraw}")
            query_tops = {name: top[position] for name, top in tops.items()}
            yield {TRUE: np.sort(chosen), **self._negatives(row, positives, query_tops, popular, rng)}

    def _negatives(
        self, query: int, positives: Rows, tops: Candidates, popular: Rows, rng: np.random.Generator
    ) -> dict[str, Rows]:
        """Return the negatives of a query by type; ``rng`` draws them."""
        corpus, count = self._corpus, self._sampling.negatives
        titles = corpus.attributes["title_key"]
        taken = np.unique(np.concatenate([[query], corpus.outgoing.of(query), positives])).astype(np.int64)

        def free(rows: Rows) -> Mask:
            other_title = (titles[rows] != titles[query]) | (titles[query] == 0)
            return np.asarray(other_title & (kit.positions_in(rows, taken) < 0))

        def eligible(rows: Rows) -> Mask:
            return np.asarray(self._eligible[rows] & free(rows))

        sources, drawn = {**tops, MOST_CITED: popular, RANDOM: self._prefiltered}, {}
        for name in (*tops, GRAPH, MOST_CITED, RANDOM):
            if name == GRAPH:
                drawn[name] = graph_candidates(corpus.outgoing, corpus.incoming, query, eligible, count, rng)
            elif name == RANDOM and len(self._prefiltered) >= 100 * (count + len(taken)):  # most are free: sample
                sample = self._prefiltered[rng.choice(len(self._prefiltered), 2 * count + len(taken), replace=False)]
                drawn[name] = np.sort(sample[free(sample)][:count])
            else:
                rows = sources[name][free(sources[name])]
                drawn[name] = np.sort(rng.choice(rows, min(count, len(rows)), replace=False))
            taken = np.union1d(taken, drawn[name])
        return drawn


def by_overlap(outgoing: kit.Graph, query: int) -> tuple[Rows, Rows]:
    """Return the papers that a query cites, by falling overlap, and the overlaps, int64 ``[cited]``.

    The overlap of a cited paper c is ``|OC(q) n (OC(c) u IC(c))|``, where OC are the papers that a paper cites and IC
    those that cite it; ties are in order of row. Only outgoing citations are read: x is in IC(c) if c is in OC(x).
    """
    cited = outgoing.of(query).astype(np.int64)
    owner, target = outgoing.of_many(cited)
    position = kit.positions_in(target, cited)
    links = np.stack([owner, position], axis=1)[position >= 0]
    directed = np.unique(np.concatenate([links, links[:, ::-1]]), axis=0)  # a pair may cite each other
    counts = np.bincount(directed[:, 0], minlength=len(cited))
    order = np.lexsort((cited, -counts))
    return cited[order], counts[order]


def graph_candidates(
    outgoing: kit.Graph,
    incoming: kit.Graph,
    query: int,
    eligible: Callable[[Rows], Mask],
    count: int,
    rng: np.random.Generator,
) -> Rows:
    """Return up to ``count`` papers near a query in the citation graph, in order of visits.

    Cited papers are visited by falling overlap (:func:`by_overlap`). Each visit adds the eligible papers that cite the
    visited paper or that it cites, unless the query cites them. The last visit adds a random subset.
    """
    visited, _ = by_overlap(outgoing, query)
    taken = np.union1d(visited, query)
    candidates = np.empty(0, np.int64)
    for paper in visited:
        cites, cited_by = outgoing.of(paper), incoming.of(paper)
        near = np.concatenate([cites, cited_by[kit.positions_in(cited_by, cites) < 0]]).astype(np.int64)
        near = near[kit.positions_in(near, taken) < 0]
        near = np.sort(near[eligible(near)], kind="stable")  # merges two rising runs in linear time
        needed = count - len(candidates)
        if len(near) >= needed:
            return np.concatenate([candidates, np.sort(rng.choice(near, needed, replace=False))])
        candidates, taken = np.concatenate([candidates, near]), np.union1d(taken, near)
    return candidates


@dataclass(frozen=True)
class BenchmarkConfig:
    """Settings of a benchmark: ``systems`` are compared, ``model_negatives`` give negatives.

    Without the latter, these are the three systems least alike on the test queries. ``left_out`` has the fields with
    too few papers, each with the reason.
    """

    drawing: SamplingConfig
    systems: tuple[str, ...]
    model_negatives: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        unknown = [name for name in self.model_negatives if name not in self.systems]
        if unknown:
            problem = f"model_negatives must be among the systems, got {unknown[0]}"
            raise InputError(problem, f"Add it, or write --set=model_negatives= for the {NEGATIVE_SYSTEMS} least alike")
        if not self.model_negatives and len(self.systems) < NEGATIVE_SYSTEMS:
            problem = f"choosing {NEGATIVE_SYSTEMS} systems takes as many or more, got {len(self.systems)}"
            raise InputError(problem, "Name more systems, or set model_negatives")


@dataclass(frozen=True)
class FieldRankings:
    """The field-level pool of one field in one split (``val`` or ``test``), and the rankings of that pool by system."""

    split: str
    field: str
    pool: Task
    rankings: Mapping[str, Task]


def benchmark_task(corpus: kit.Artifact, fields: Sequence[FieldRankings], config: BenchmarkConfig) -> Task:
    """Return the task that builds a benchmark.

    The artifact has the two files of each split in the published layout. A validation query that is a test query of
    another field is left out and counted.
    """
    inputs: dict[str, Task | kit.Artifact] = {"corpus": corpus}
    for field in fields:
        inputs[f"{field.split}/{field.field}"] = field.pool
        inputs |= {f"{field.split}/{field.field}/{system}": ranking for system, ranking in field.rankings.items()}
    pools = [(field.split, field.field) for field in fields]
    run = functools.partial(_build, pools, config)
    return Task("benchmark", 1, "corpora/benchmarks", f"mdcr-{corpus.manifest.slug}", config, inputs, run)


def _build(
    pool_names: Sequence[tuple[str, str]],
    config: BenchmarkConfig,
    inputs: kit.Inputs,
    out: kit.Workdir,
    _resources: kit.Resources,
) -> kit.Counts:
    corpus = Corpus(inputs["corpus"])
    pools = {name: Pool(inputs["/".join(name)], corpus) for name in pool_names}
    sampler = CandidateSampler(pools[pool_names[0]], config.drawing)
    tops = {
        name: {system: sampler.top_negatives(inputs["/".join([*name, system])], pool) for system in config.systems}
        for name, pool in pools.items()
    }
    test_tops = [top for (split, _), top in tops.items() if split == "test"]
    jaccard = mean_jaccard({system: [rows for top in test_tops for rows in top[system]] for system in config.systems})
    negative_systems = config.model_negatives or least_alike(jaccard, config.systems, NEGATIVE_SYSTEMS)
    test_rows = np.concatenate([pool.query_rows for (split, _), pool in pools.items() if split == "test"])
    counts: Counter[str] = Counter()
    with kit.Progress(len(pool_names), "benchmark", "fields") as progress:
        for split, group in itertools.groupby(pool_names, key=lambda name: name[0]):
            lists: dict[str, dict[int, Candidates]] = {}
            for _, field in group:
                pool = pools[split, field]
                is_kept = np.full(len(pool.query_rows), split == "test") | ~np.isin(pool.query_rows, test_rows)
                if not is_kept.any():
                    problem = f"every validation query of {field} is a test query of another field"
                    raise InputError(problem, "Ask for more queries")
                drawn = sampler.draw(pool, split, {system: tops[split, field][system] for system in negative_systems})
                lists[field] = dict(itertools.compress(zip(pool.query_rows.tolist(), drawn, strict=True), is_kept))
                counts.update(_split_counts(split, pool, list(lists[field].values()), config.drawing))
                progress.add(1)
            counts[f"{split}_papers"] = _write(out, split, corpus, lists)
    return {
        **dict(counts),
        "left_out_fields": len(config.left_out),
        "fields_left_out": dict(config.left_out),
        "model_negatives": list(negative_systems),
        "jaccard": {f"{system}|{other}": round(value, 6) for (system, other), value in jaccard.items()},
    }


def mean_jaccard(tops: Mapping[str, Sequence[Rows]]) -> dict[tuple[str, str], float]:
    """Return the Jaccard index of the top negatives of each two systems, mean over queries."""
    means = {}
    for first, second in itertools.combinations(tops, 2):
        values = []
        for rows, other_rows in zip(tops[first], tops[second], strict=True):
            union = len(np.union1d(rows, other_rows))
            values.append((len(rows) + len(other_rows) - union) / union if union else 1.0)
        means[first, second] = float(np.mean(values))
    return means


def least_alike(jaccard: Mapping[tuple[str, str], float], systems: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the systems whose mean Jaccard index with the others is lowest, in the order of ``systems``.

    Ties are broken by name.
    """
    means = {system: float(np.mean([value for pair, value in jaccard.items() if system in pair])) for system in systems}
    lowest = sorted(systems, key=lambda system: (round(means[system], 12), system))[:count]
    return tuple(system for system in systems if system in lowest)


def _split_counts(split: str, pool: Pool, drawn: Sequence[Candidates], drawing: SamplingConfig) -> Counter[str]:
    """Return the counts of one field, named after the split; ``drawn`` has the candidates of each query."""

    def fewer(names: Sequence[str], count: int) -> int:
        return sum(any(len(by_type[name]) < count for name in names) for by_type in drawn)

    positives = np.concatenate([by_type[TRUE] for by_type in drawn])
    is_later = pool.corpus.attributes["year"][positives] > pool.artifact.manifest.config["year"]
    counts = {
        "fields": 1,
        "queries": len(drawn),
        "pairs": sum(len(rows) for by_type in drawn for rows in by_type.values()),
        "queries_with_fewer_positives": fewer([TRUE], drawing.positives),
        "queries_with_fewer_graph_candidates": fewer([GRAPH], drawing.negatives),
        "queries_with_fewer_negatives": fewer([name for name in drawn[0] if name != TRUE], drawing.negatives),
        "positives_after_query_year": int(np.count_nonzero(is_later)),  # protocol 2 keeps them
    }
    if split != "test":
        counts["queries_left_out_as_test_queries"] = len(pool.query_rows) - len(drawn)
    return Counter({f"{split}_{name}": count for name, count in counts.items()})


def _write(out: kit.Workdir, split: str, corpus: Corpus, lists: Mapping[str, Mapping[int, Candidates]]) -> int:
    """Write the two files of a split, and return its number of papers."""
    candidates = [papers for queries in lists.values() for by_type in queries.values() for papers in by_type.values()]
    rows = np.unique(np.concatenate([*candidates, *(list(queries) for queries in lists.values())])).astype(np.int64)
    ids = dict(zip(rows.tolist(), corpus.ids(rows), strict=True))
    content = {
        field: {
            ids[query]: {name: [ids[row] for row in papers.tolist()] for name, papers in by_type.items()}
            for query, by_type in queries.items()
        }
        for field, queries in lists.items()
    }
    lists_name, data_name = file_names(split)
    with out.file(lists_name) as (path, _):
        path.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
    with out.file(data_name) as (path, _), path.open("w", encoding="utf-8") as file:
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            texts = (text for block_texts in corpus.texts(block) for text in block_texts)
            for row, text in zip(block.tolist(), texts, strict=True):
                paper = {"paper_id": ids[row], "title": text.title, "abstract": text.abstract}
                file.write(json.dumps(paper, ensure_ascii=False) + "\n")
    return len(rows)
