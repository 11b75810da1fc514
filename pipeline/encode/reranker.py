"""Rerankers of sentence-transformers score pairs of a query and a paper; the library makes the batches.

A cross-encoder reads both texts together (Nogueira and Cho 2019). A multi-vector encoder has one vector a token; its
score is MaxSim: over the query's vectors, the sum of the largest similarity to a vector of the paper (Khattab and
Zaharia 2020).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import sentence_transformers
import torch

from pipeline.core.errors import InputError, StageError
from pipeline.core.resources import Resources
from pipeline.encode import kinds
from pipeline.encode.base import Encoded, Pair, in_order
from pipeline.encode.network import FREE, PROBE, load_saved, loading, torch_device

Scores = npt.NDArray[np.float32]

_REMEDY = "Give one such as cross-encoder/ms-marco-MiniLM-L6-v2"


class Reranker(ABC):
    """A model of sentence-transformers on one device, which scores ``block`` pairs at a time."""

    block = 256

    def __init__(self, encoder: Any, model: Any, workers: int) -> None:
        self._encoder, self._model, self._workers = encoder, model, max(workers, 1)

    def describe(self) -> Mapping[str, Any]:
        """Return device, precision, bytes of the weights and threads."""
        device = self._encoder.device
        return {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "compute": self._model.compute,
            "weight_bytes": sum(weight.nbytes for weight in self._encoder.parameters()),
            "threads": self._workers,
        }

    def scores(self, pairs: Sequence[Pair]) -> Iterator[Encoded]:
        """Yield the scores of pairs batch by batch, as vectors of one component."""
        for start in range(0, len(pairs), self.block):
            try:
                scores = self.score(pairs[start : start + self.block])
            except torch.OutOfMemoryError as error:
                raise StageError(f"pairs do not fit on {self._encoder.device}", FREE) from error
            yield Encoded(np.arange(start, start + len(scores)), scores[:, None], len(scores))

    @abstractmethod
    def score(self, pairs: Sequence[Pair]) -> Scores:
        """Return the scores of pairs."""


class CrossEncoder(Reranker):
    """A cross-encoder with one label; :meth:`score` is its ``predict``.

    On a CPU a thread scores one pair at a time on one core, so that no score depends on the number of threads; a GPU
    scores 32 together.
    """

    def __init__(self, encoder: Any, model: kinds.Cross, workers: int) -> None:
        super().__init__(encoder, model, workers if encoder.device.type == "cpu" else 1)
        self._threads = ThreadPoolExecutor(self._workers, "rerank", torch.set_num_threads, (1,))
        self._size = 1 if encoder.device.type == "cpu" else 32
        encoder[0].max_seq_length = model.max_length
        self._predict([Pair("", "")])  # sets up the tokenizer, which threads share

    def score(self, pairs: Sequence[Pair]) -> Scores:
        """Return the activation of the last module's output."""
        blocks = [pairs[start : start + self._size] for start in range(0, len(pairs), self._size)]
        return np.concatenate(list(self._threads.map(self._predict, blocks)))

    def _predict(self, pairs: Sequence[Pair]) -> Scores:
        scores: Scores = self._encoder.predict(
            list(map(tuple, pairs)),
            prompt=self._model.prompt or None,
            activation_fn=lambda logits: self._encoder.activation_fn(logits.float()),
            show_progress_bar=False,
        )
        return scores


class MaxSim(Reranker):
    """A multi-vector encoder; :meth:`score` is its ``similarity_pairwise``."""

    block = 1_024  # at most a gigabyte at 512 tokens of 128 components

    def score(self, pairs: Sequence[Pair]) -> Scores:
        """Return the scores; a text of several pairs is encoded once."""
        torch.set_num_threads(self._workers)
        queries, papers = zip(*pairs, strict=True)
        vectors = _encode(self._encoder.encode_query, queries), _encode(self._encoder.encode_document, papers)
        scores: Scores = self._encoder.similarity_pairwise(*vectors).float().cpu().numpy()
        return scores


def load(model: kinds.Cross | kinds.MaxSim, _fit: None, resources: Resources) -> Reranker:
    """Load a model's weights and tokenizer.

    Raises:
        InputError: the device does not exist, or the checkpoint cannot be loaded.
        StageError: the weights are not on this machine, and the hub cannot be reached.
    """
    device, folder = torch_device(resources.device), model.ready()
    if isinstance(model, kinds.Cross):
        loaded: Any = load_saved(sentence_transformers.CrossEncoder, folder, "sequence-classification")
        if loaded.num_labels != 1:
            raise InputError(f"the cross-encoder in {folder} must have one label, got {loaded.num_labels}", _REMEDY)
    else:
        loaded = load_saved(cast("Any", sentence_transformers).MultiVectorEncoder, folder)
    with loading(folder):
        loaded.to(device, getattr(torch, model.compute))
        kind: Any = CrossEncoder if isinstance(model, kinds.Cross) else MaxSim
        encoder: Reranker = kind(loaded, model, resources.workers)
        in_order(encoder.scores([Pair(*text) for text in PROBE]), 1)
    return encoder


def _encode(encode: Callable[[list[str]], list[Any]], texts: Sequence[str]) -> list[Any]:
    """Return the vectors of texts; repeated texts are encoded once."""
    distinct = list(dict.fromkeys(texts))
    vectors = dict(zip(distinct, encode(distinct), strict=True))
    return [vectors[text] for text in texts]
