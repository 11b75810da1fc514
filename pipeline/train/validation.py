"""Mean average precision on a pool during training."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers.base.evaluation import BaseEvaluator

from pipeline.core.csr import offsets_of
from pipeline.corpus.pool import Pool
from pipeline.encode.model import Distance
from pipeline.measure.engines import average_precision
from pipeline.train.architectures import Architecture
from pipeline.train.examples import Writer

Matrix = npt.NDArray[np.float32]

_BATCH = 64


class PoolEvaluator(BaseEvaluator):
    """Ranks the candidates of a pool by the vectors of format ``proximity``, and returns ``map``, a fraction."""

    def __init__(self, pool: Pool, architecture: Architecture, writer: Writer, dtype: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._pool, self._architecture, self._writer, self._dtype = pool, architecture, writer, dtype
        self.primary_metric = "map"

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
        """Return the MAP of the current network."""
        pool = self._pool
        self._architecture.switch("proximity")
        papers = self._vectors(model)
        candidates = np.searchsorted(pool.papers, pool.candidates)
        table = pool.qrels
        query, row = (table.column(name).to_numpy() for name in ("query", "row"))
        offsets = offsets_of(query, len(pool.query_rows))
        ranks = np.zeros(len(row), np.int64)
        for number, paper in enumerate(pool.query_rows):
            vector = papers[np.searchsorted(pool.papers, paper)]
            scores = _scores(vector, papers[candidates], self._architecture.base.distance)
            scores[np.searchsorted(pool.candidates, pool.excluded(number))] = -np.inf
            rank_of = np.empty(len(scores), np.int64)
            rank_of[np.lexsort((pool.candidates, scores))[::-1]] = np.arange(1, len(scores) + 1)
            judged = slice(offsets[number], offsets[number + 1])
            ranks[judged] = rank_of[np.searchsorted(pool.candidates, row[judged])]
        return {"map": float(np.nanmean(average_precision(ranks[:, None], offsets)))}

    def _vectors(self, model: Any) -> Matrix:
        """Return the vectors of the pool's papers, float32 ``[papers, dimension]``, in row order."""
        blocks = []
        for block in self._pool.corpus.texts(self._pool.papers):
            texts = [self._writer(text.title, text.abstract, "proximity") for text in block]
            with torch.autocast(model.device.type, self._dtype, enabled=self._dtype != torch.float32):
                blocks.append(model.encode(texts, batch_size=_BATCH, show_progress_bar=False))
        return np.concatenate(blocks).astype(np.float32)


def _scores(vector: Matrix, papers: Matrix, distance: Distance) -> Matrix:
    if distance == "l2":
        squared: Matrix = ((papers - vector) ** 2).sum(axis=1)
        return -squared
    products: Matrix = papers @ vector
    return products / np.linalg.norm(papers, axis=1) if distance == "cosine" else products
