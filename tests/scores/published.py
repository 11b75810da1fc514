"""A workspace with published scores whose pools and systems have any settings, made without ranking anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.core.artifact import Artifact
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.schema import CANDIDATES, EXCLUSIONS, JUDGEMENTS, MISSING, POOL_QUERIES, RANKING
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS, RANKINGS, TUNINGS
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.stages.ranking_file import RECORDED
from pipeline.stages.score import score_task
from tests.builders import make_corpus, make_pool
from tests.measure.cases import Run, ranking_table

GOOD: Run = [{5: 3.0, 4: 2.0, 3: 1.0}, {6: 1.0, 3: 1.0}, {}]
BAD: Run = [{4: 2.0}, {6: 1.0, 3: 0.5}, {7: 1.0}]
ENCODER = {"kind": "transformer", "compute": "float32", "storage": "float32", "revision": "a" * 40}
_EDGES = [("00000", "00003"), ("00000", "00005"), ("00001", "00003"), ("00002", "00007")]
_FILES = {
    "queries.arrow": POOL_QUERIES,
    "candidates.arrow": CANDIDATES,
    "qrels.arrow": JUDGEMENTS,
    "exclusions.arrow": EXCLUSIONS,
}


def corpus(root: Path, name: str = "tiny", papers: int = 8) -> Artifact:
    return make_corpus(root, papers, _EDGES, name=name)


def pool(root: Path, of: Artifact, *, candidates: int = 8, **settings: Any) -> Artifact:
    """Publish a pool of the papers 0 to 2 as queries, under any settings of :class:`PoolConfig`."""
    drawn = make_pool(root / "drawn", of, [0, 1, 2], list(range(8 - candidates, 8)))
    absent = {"positives_not_in_collection": settings.pop("absent")} if "absent" in settings else {}

    def write(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        for name, schema in _FILES.items():
            out.arrow(name, drawn.arrow(name), schema)
        if settings.get("queries_are") == "texts":
            out.arrow("missing.arrow", MISSING.empty_table(), MISSING)
        return {**drawn.manifest.counts, **absent}

    config = PoolConfig(**{"queries": 3, "size": candidates, **settings})
    return Runner(root, Resources(workers=1)).make(Task("pool", 1, POOLS, config.slug, config, {"corpus": of}, write))


def tuning(root: Path, number: int) -> Artifact:
    task = Task("tune", 1, TUNINGS, f"t{number}", {"number": number}, {}, lambda *_: {})
    return Runner(root, Resources(workers=1)).make(task)


def score(
    root: Path,
    of: Artifact,
    pool: Artifact,
    system: str,
    run: Run = GOOD,
    measures: str = "map,ndcg",
    inputs: Mapping[str, Artifact] | None = None,
    **settings: Any,
) -> Artifact:
    """Publish a ranking of a pool under any settings, and its scores."""
    missing = settings.pop("missing_positives", "ignore")
    recorded = {name: settings.pop(name) for name in RECORDED if name in settings}
    table = ranking_table(run)

    def write(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        out.arrow("ranking.arrow", table, RANKING)
        out.note(**recorded)
        return {"queries": 3, "entries": table.num_rows}

    own: dict[str, Task | Artifact] = {"pool": pool, **(inputs or {})}
    if recorded:
        own["paper"] = Task("embed", 1, "indexes/vectors/x", "vectors", recorded, {}, lambda *_: {})
    ranking = Task("search", 1, RANKINGS, "rank", {"depth": 500, **settings}, own, write)
    asked = tuple(measures.split(","))
    task = score_task(ranking, pool, of, system=system, measures=asked, missing_positives=missing)
    return Runner(root, Resources(workers=1)).make(task)
