"""Stored scores of a workspace: a frame with a row for each ranking, and the scores of its queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core.artifact import Artifact, oldest_first, published, readable
from pipeline.core.config import SHORT_ID, canonical, digest, from_mapping, values_of
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.manifest import MANIFEST, Counts
from pipeline.core.runner import Runner
from pipeline.core.workspace import CORPORA, POOLS, RANKINGS, SCORES, TUNINGS
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import SEPARATING, SETTINGS
from pipeline.corpus.reader import Corpus
from pipeline.measure.inputs import Qrels, RankedRun, query_of, ranks_of
from pipeline.measure.measures import parse_measures
from pipeline.retrieve.engines import IndexSettings
from pipeline.scores.facts import artifact_of, as_text, flatten, format_setting, path_of, requested
from pipeline.scores.frames import RUNS, SCORES_SCHEMA, joined
from pipeline.scores.sources import Sources
from pipeline.stages.chain import Evaluation
from pipeline.stages.ranking_file import settings_of
from pipeline.stages.score import AMONG_ABSTRACTS
from pipeline.stages.systems import display_name, is_tuned, stored_system, system_of
from pipeline.stages.tune import find_tuning

_SCORED = ("queries_without_positive", "queries_without_results")
"""Counts of a scoring that a frame of rankings contains."""

_TUNED = ("k1", "b")
"""Settings that differ between pools if they were chosen on validation queries."""


def stored(root: Path, folder: str = SCORES) -> pl.DataFrame:
    """Return all scored rankings of a workspace, columns :data:`RUNS`; unreadable ones are left out with a warning.

    ``folder`` contains the scores; studies may use another one. A ranking may have several artifacts of scores, one for
    each list of measures; the newest come first.
    """
    parents = (POOLS, RANKINGS, CORPORA)
    pools, rankings, corpora = ({artifact.id: artifact for artifact in published(root / parent)} for parent in parents)
    scores_of: dict[tuple[str, str, str], list[Artifact]] = {}

    def complete(artifact: Artifact) -> Artifact:
        inputs = artifact.manifest.inputs
        for folder, kept, identity in ((POOLS, pools, inputs["pool"]), (RANKINGS, rankings, inputs["ranking"])):
            if identity not in kept:
                problem = f"{artifact.path}, because {_why_missing(root / folder, identity)}"
                raise InputError(problem, "Run the command that makes it with --repair, or remove its folder")
        return _usable(artifact)

    for artifact in readable(reversed(oldest_first(published(root / folder))), complete):
        inputs, config = artifact.manifest.inputs, artifact.manifest.config
        key = (inputs["ranking"], config["system"], config.get("missing_positives", "ignore"))
        scores_of.setdefault(key, []).append(artifact)
    found = []
    for (ranking, _, _), scores in scores_of.items():
        pool = pools[scores[0].manifest.inputs["pool"]]
        found.append((scores, rankings[ranking], pool, corpora.get(pool.manifest.inputs["corpus"])))
    return _frame(root, found)


def _usable(scores: Artifact) -> Artifact:
    """Return scores; raise InputError if they are of no query, or by a measure that is unknown."""
    remove = f"remove {scores.path}"
    if not scores.manifest.counts.get("queries", 1):
        raise InputError(f"{scores.path} has no query with a positive", f"Check the ids of the qrels, and {remove}")
    try:
        parse_measures(scores.manifest.config["measures"])
    except InputError as error:
        raise InputError(f"{scores.path}: {error.what}", f"Register it by a plugin, or {remove}") from error
    return scores


def with_values(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the rankings, columns :data:`RUNS`, whose scores can be read."""
    return _that_open(runs, _read_scores)


def readable_runs(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the rows whose rankings can be read; the others are left out with a line."""
    return _that_open(runs, lambda run: artifact_of(run, "ranking").file("ranking.arrow"))


def _that_open(runs: pl.DataFrame, read: Callable[[Mapping[str, Any]], Any]) -> pl.DataFrame:
    rows = enumerate(runs.iter_rows(named=True))
    return runs[[number for number, _ in readable(rows, lambda row: (row[0], read(row[1])))]]


def runs_of(runner: Runner, evaluations: Iterable[Evaluation]) -> pl.DataFrame:
    """Return evaluations as a frame of rankings, columns :data:`RUNS`; those without a measure are left out."""
    found = []
    for evaluation in evaluations:
        inputs, scores = evaluation.scores[0].inputs, runner.make_all(evaluation.scores)
        read = [inputs[name] for name in ("ranking", "pool", "corpus")]
        ranking, pool, corpus = (read if isinstance(read, Artifact) else runner.make(read) for read in read)
        found.append((scores, ranking, pool, corpus))
    return _frame(runner.root, found)


_Found = tuple[Sequence[Artifact], Artifact, Artifact, Artifact | None]
"""Scores of a ranking, the ranking, its pool, and the corpus if it is there."""


def _frame(root: Path, found: Sequence[_Found]) -> pl.DataFrame:
    tunings = list(published(root / TUNINGS))
    tuned = {
        pool.id
        for scores, _, pool, _ in found
        if is_tuned(stored_system(scores[0].manifest))
        or find_tuning(tunings, pool.manifest.inputs["corpus"], pool.manifest.config)
    }
    sources = Sources([root], known=[ranking for _, ranking, _, _ in found])
    rows = [_row(parts, tuned=parts[2].id in tuned, sources=sources) for parts in found]
    return pl.DataFrame([row for row in rows if row["measures"]], schema=RUNS, orient="row")


def open_pool(run: Mapping[str, Any]) -> Pool | None:
    """Open the pool of a row of a frame of rankings with its corpus; None if one is gone or cannot be read."""
    return next(readable([run], _open_pool), None) if _has_corpus(run) else None


def _has_corpus(run: Mapping[str, Any]) -> bool:
    return run["workspace"] is not None and (path_of(run, "corpus") / MANIFEST).is_file()


def _open_pool(run: Mapping[str, Any]) -> Pool:
    pool = Pool(artifact_of(run, "pool"), Corpus(artifact_of(run, "corpus")))
    for output in pool.artifact.manifest.outputs:
        pool.artifact.file(output.path)
    pool.corpus.artifact.file("attributes.arrow")
    return pool


@dataclass(frozen=True, eq=False)
class Rankings:
    """One pool with its positives and the rankings of some systems.

    Attributes:
        pool: the open pool.
        qrels: its positives.
        runs: rankings by the label of their row.
    """

    pool: Pool
    qrels: Qrels
    runs: Mapping[str, RankedRun]

    @cached_property
    def ranks(self) -> dict[str, npt.NDArray[np.int64]]:
        """Rank of each positive from 1, or 0 if it was not retrieved, int64 ``[positives]``, by label."""
        query = query_of(self.qrels.offsets)
        return {label: ranks_of(run, query, self.qrels.rows) for label, run in self.runs.items()}


def open_rankings(runs: pl.DataFrame, pool: Pool | None = None) -> Rankings:
    """Open the rankings of one pool, columns :data:`RUNS`; ``pool`` is that pool, if it is open already.

    Raises:
        InputError: the corpus is gone, or something cannot be read.
    """
    first = runs.row(0, named=True)
    if pool is None and not _has_corpus(first):
        raise InputError(f"the corpus {first['corpus']} must be there to name papers", "Build it again")
    pool = pool or _open_pool(first)
    tables = {run["label"]: artifact_of(run, "ranking").arrow("ranking.arrow") for run in runs.iter_rows(named=True)}
    by_label = {label: RankedRun.from_table(table, pool) for label, table in tables.items()}
    return Rankings(pool, Qrels.from_table(pool.qrels, pool), by_label)


def values(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the values of rankings, columns :data:`pipeline.scores.frames.VALUES`, ranking by ranking as given.

    Raises:
        CorruptError: a ranking does not have one value for each query and measure.
    """
    return joined(runs, map(_read_scores, runs.iter_rows(named=True)))


def scores_of(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the values of rankings with all that is known of each: :data:`pipeline.scores.frames.SCORES_SCHEMA`.

    Raises:
        CorruptError: as :func:`values`.
    """
    pools = runs.unique("pool", maintain_order=True).rows(named=True)
    ids_of = {run["pool"]: [] if (pool := open_pool(run)) is None else pool.query_ids() for run in pools}

    def with_ids(run: Mapping[str, Any]) -> pl.DataFrame:
        scores, ids = _read_scores(run), ids_of[run["pool"]]
        query_id = pl.Series(ids, dtype=pl.String).gather(scores["query"]) if ids else pl.lit(None, pl.String)
        return scores.with_columns(query_id.alias("query_id"))

    return joined(runs, map(with_ids, runs.iter_rows(named=True)), SCORES_SCHEMA)


def _row(found: _Found, *, tuned: bool, sources: Sources) -> dict[str, Any]:
    scores, ranking, pool_artifact, corpus = found
    scored, pool = scores[0].manifest, pool_artifact.manifest
    config, (system, aliases) = pool.config, display_name(stored_system(scored), tuned=tuned)
    settings = {"depth": scored.counts["depth"], **settings_of(ranking.manifest)}
    if isinstance(parts := settings.get("parts"), Mapping):
        settings["parts"] = {display_name(system_of(part), tuned=tuned)[0]: value for part, value in parts.items()}
    if config.get("queries_are") == "texts":
        settings["missing_positives"] = scored.config.get("missing_positives", "ignore")
    depth = int(settings["depth"])
    varying = {setting.path[0] for name, setting in SETTINGS.items() if name not in SEPARATING}
    shared = {name: value for name, value in config.items() if name not in varying}
    parsed = {measure for artifact in scores for measure in parse_measures(artifact.manifest.config["measures"])}
    row_settings, engine = _row_settings(system, settings), _engine(settings)
    tuning = ranking.manifest.inputs.get("tuning")
    return {
        **requested(config),
        **{name: settings.get(name) for name in ("k1", "b")},
        **{name: pool.counts[name] for name in ("queries", "positives")},
        "positives_not_in_collection": pool.counts.get("positives_not_in_collection", 0),
        **{name: scored.counts[name] for name in _SCORED},
        "corpus": str(scored.provenance["corpus"]) if corpus is None else corpus.name,
        "size": int(pool.counts["candidates"]),
        "system": system,
        "depth": depth,
        "precision": "+".join(sorted(set(values_of(settings, "compute")))) or None,
        "engine": engine,
        "revision": "+".join(sorted({revision for revision in values_of(settings, "revision") if revision})) or None,
        "missing_positives": settings.get("missing_positives"),
        "settings": as_text(flatten(settings)),
        "pool": pool_artifact.name,
        "ranking": ranking.name,
        "label": system,
        "aliases": aliases,
        "kind": digest([pool.inputs["corpus"], pool.stage_version, shared]),
        "scores": [artifact.name for artifact in scores],
        "measures": [str(m) for m in sorted(parsed, key=lambda m: m.order) if (m.cutoff or 0) <= depth],
        **{f"{kind}_{mark}": n for kind, marks in pool.counts.get("marks", {}).items() for mark, n in marks.items()},
        "without_vector": _without_vector(ranking.manifest.counts),
        "encoders": sources.encoders(ranking, system),
        "replaced": False,
        "row": digest([system, row_settings]),
        "setup": digest({name: value for name, value in config.items() if name != "sample"}),
        "row_settings": [
            {"name": name, "value": format_setting(value)}
            for name, value in flatten(_with_engine(row_settings, engine)).items()
        ],
        "variant": digest([ranking.manifest.stage_version, tuning, canonical(settings)]),
        "published": ranking.manifest.order[0],
        "made": ranking.manifest.order[1],
        "workspace": str(ranking.path.parents[2]),
        "score_paths": [str(artifact.path) for artifact in scores],
    }


def _row_settings(system: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are the same for every pool: without those that may be chosen on validation queries."""
    row_settings = {name: value for name, value in settings.items() if not (system == "bm25" and name in _TUNED)}
    if isinstance(parts := settings.get("parts"), Mapping):
        row_settings["parts"] = {name: _row_settings(name, part) for name, part in parts.items()}
    return row_settings


def _with_engine(settings: Mapping[str, Any], engine: str | None) -> dict[str, Any]:
    """Return settings with the name of the engine in place of the settings of a search."""
    return {
        name: engine if name == "search" else _with_engine(value, engine) if isinstance(value, Mapping) else value
        for name, value in settings.items()
    }


def _without_vector(counts: Counts) -> str | None:
    """Return how many papers of a ranking have no vector; None if all have one."""
    candidates, queries = (counts.get(f"{name}_without_vector", 0) for name in ("candidates", "queries"))
    if not (candidates or queries):
        return None
    return (
        f"no vector for {candidates:,} of {counts['candidates']:,} candidates and {queries:,} of "
        f"{counts['queries']:,} queries"
    )


def _engine(settings: Mapping[str, Any]) -> str | None:
    """Return ``exact`` or the index of approximate search; None for systems without vectors."""
    searches = list(values_of(settings, "search"))
    indexes = [
        from_mapping(IndexSettings, search).name if "factory" in search else str(search.get("kind"))  # earlier versions
        for search in searches
        if isinstance(search, Mapping)
    ]
    return next(iter([*indexes, *searches]), None)


def _read_scores(run: Mapping[str, Any]) -> pl.DataFrame:
    """Return the values of one ranking from all its artifacts, without repetitions."""
    frames = [_read_artifact(Artifact.open(Path(path))) for path in run["score_paths"]]
    scores = pl.concat(frames, how="diagonal").filter(pl.col("measure").is_in(run["measures"]))
    scores = scores.unique(["query", "measure"], keep="first", maintain_order=True)
    if not _is_complete(scores, run["measures"]):
        raise CorruptError(
            f"the scores of {path_of(run, 'ranking')} have other queries", "Score it again with --repair"
        )
    return scores


def _read_artifact(artifact: Artifact) -> pl.DataFrame:
    """Return the values of an artifact: ``query, measure, value`` and, where it has them, those among abstracts."""
    columns = ["query", "measure", "value"]
    table, measures = pl.DataFrame(artifact.arrow("scores.arrow").select(columns)), artifact.manifest.config["measures"]
    if any(output.path == AMONG_ABSTRACTS for output in artifact.manifest.outputs):
        among = pl.DataFrame(artifact.arrow(AMONG_ABSTRACTS).select(columns)).rename({"value": "among_abstracts"})
        table = table.join(among, on=columns[:2], how="left", maintain_order="left")
    if not _is_complete(table, measures) or table["value"].null_count():
        raise CorruptError(f"{artifact.path} does not have one value for each query and measure", "Score it again")
    return table


def _is_complete(scores: pl.DataFrame, measures: Iterable[str]) -> bool:
    """Return whether measures have one value for each query; those of a higher grade lack queries without one."""
    counts, queries = dict(scores.group_by("measure").len().iter_rows()), scores["query"].n_unique()
    whole = {name: queries for name in measures if parse_measures(name)[0].relevant == 1}
    is_distinct = scores.select("query", "measure").n_unique() == len(scores)
    return is_distinct and counts.keys() == set(measures) and counts | whole == counts


def _why_missing(parent: Path, identity: str) -> str:
    """Return the reason why an artifact of a folder cannot be read."""
    folder = next(parent.glob(f"[!.]*-{identity[:SHORT_ID]}"), None)
    return f"{folder / MANIFEST} is damaged" if folder else f"{parent} has no artifact {identity[:SHORT_ID]} any more"
