"""Dense search in units: each ranks some corpus shards' candidates, and the best of all units are the ranking.

The score of a pair is canonical and the order total (:mod:`pipeline.retrieve.base`), so the merged ranking is that of
one pass over all candidates, ties included.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.schema import RANKING
from pipeline.core.task import Facts, Inputs
from pipeline.core.workdir import Workdir
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus, Rows
from pipeline.retrieve.base import Metric, Subset
from pipeline.retrieve.topk import TopK, pack
from pipeline.stages.dense import DenseConfig, rank_pools
from pipeline.stages.search import write_ranking

MOST_UNITS = 64
"""Units of one ranking: each leaves ``depth`` entries a query, 23 MB for 3,800 queries at depth 500."""


@dataclass(frozen=True)
class DenseSearch:
    """The search of one pool by one encoder's vectors (:class:`pipeline.core.task.Sharded`).

    Attributes:
        name: the encoder's.
        metric: how its vectors are compared.
        depth: entries a query.
        engine: ``auto``, ``exact`` or ``faiss``.
    """

    name: str
    metric: Metric
    depth: int
    engine: str
    in_turn = False
    accelerated = True

    def plan(self, inputs: Inputs, out: Workdir) -> Mapping[str, int]:  # noqa: ARG002
        """Return the units: neighbouring corpus shards, at most :data:`MOST_UNITS` of them."""
        return {unit: len(rows) for unit, rows in self._parts(_open(inputs)).items()}

    def devices(self, resources: Resources) -> list[str]:
        """Return one device: an engine uses all cores, or all GPUs, of a machine."""
        return [resources.device]

    def work(self, inputs: Inputs, out: Workdir, resources: Resources, units: Sequence[str]) -> Facts:
        """Rank the candidates of each unit by itself."""
        pool = _open(inputs)
        parts = self._parts(pool)
        config, subset = DenseConfig(self.metric, self.depth), Subset(None, pool.exclusions)
        title, engines = f"search {self.name}", set()
        for unit in units:
            (ranking,), ran = rank_pools(
                inputs, pool.query_rows, parts[unit], [subset], title, config, self.engine, resources
            )
            with files.disk_errors(out.path), files.replacing(out.path / unit) as path:
                files.write_arrow(path, ranking.table().to_batches(), RANKING)
            engines.add(ran)
        return {"engine": ", ".join(sorted(engines))}

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[Facts]) -> Counts:  # noqa: ARG002
        """Merge the units' rankings by the one total order."""
        pool = _open(inputs)
        best = TopK(len(pool.query_rows), self.depth)
        parts = self._parts(pool)
        for unit in parts:
            table = files.read_arrow(out.path / unit)
            query, row, score = (_column(table, name) for name in ("query", "row", "score"))
            best.add(query.astype(np.int64), pack(score, row))
        engines = sorted({str(each["engine"]) for each in facts if each.get("engine")})
        out.note(engine=", ".join(engines), units=len(parts))
        return write_ranking(best.ranking(), pool, self.depth, out)

    def _parts(self, pool: Pool) -> dict[str, Rows]:
        ends = np.searchsorted(pool.candidates, pool.corpus.starts[1:-1])
        shards = [part for part in np.split(pool.candidates, ends) if len(part)]
        count = min(len(shards), MOST_UNITS)
        bounds = [len(shards) * number // count for number in range(count + 1)] if count else []
        return {
            f"scratch/top-{number:05d}.arrow": np.concatenate(shards[start:stop])
            for number, (start, stop) in enumerate(itertools.pairwise(bounds))
        }


def _open(inputs: Inputs) -> Pool:
    return Pool(inputs["pool"], Corpus(inputs["corpus"]))


def _column(table: pa.Table, name: str) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = table.column(name).combine_chunks().to_numpy()
    return found
