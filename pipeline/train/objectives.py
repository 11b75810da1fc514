"""Losses of a batch of one task (Singh et al. 2023, section 4.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn
from torch.nn import functional

from pipeline.train.architectures import Architecture
from pipeline.train.examples import Examples
from pipeline.train.recipe import Settings

DEVIATION = 0.02
"""Standard deviation of the first weights of a linear head, whose bias is 0, as in the authors' code."""


class Objective(nn.Module):  # type: ignore[misc]
    """The loss of one training set; classes, labels and numbers have a linear head, which is not saved.

    Args:
        architecture: gives the vectors.
        examples: the training set.
        settings: margin of triplets, scale of cosines, dropout before the head.
        tasks: number of tasks of a step; since their losses are averaged over its micro-batches, this factor sums them.
    """

    def __init__(self, architecture: Architecture, examples: Examples, settings: Settings, tasks: int) -> None:
        super().__init__()
        self.model = architecture.model
        self._switch, self._formats, self._goal = architecture.switch, examples.formats, examples.goal
        self._margin, self._tasks, no_model = settings.margin, tasks, cast("Any", None)  # vectors are computed here
        self._contrast = MultipleNegativesRankingLoss(no_model, scale=settings.scale)
        dimension = self.model.get_embedding_dimension() or architecture.network.config.hidden_size
        self.head = _head(dimension, examples.outputs, settings.head_dropout) if examples.outputs else None

    def forward(self, features: Iterable[dict[str, Any]], labels: torch.Tensor | None) -> torch.Tensor:
        """Return the mean loss of a batch, times the number of tasks."""
        vectors = []
        for feature, form in zip(features, self._formats, strict=True):
            self._switch(form)
            vectors.append(self.model(feature)["sentence_embedding"].float())
        with torch.autocast(vectors[0].device.type, enabled=False):  # cosines and logits in full precision
            return self._loss(vectors, labels) * self._tasks

    def _loss(self, vectors: list[torch.Tensor], labels: Any) -> torch.Tensor:
        if self._goal == "triplet":
            query, positive, negative = vectors
            return functional.triplet_margin_loss(query, positive, negative, margin=self._margin, p=2)
        if self.head is None:
            return self._contrast.compute_loss_from_embeddings(vectors, labels)
        guessed = self.head(vectors[0])
        if self._goal == "classes":
            return functional.cross_entropy(guessed, labels)
        if self._goal == "labels":
            return functional.binary_cross_entropy_with_logits(guessed, labels.float())
        return functional.mse_loss(guessed.squeeze(-1), labels.float())


def _head(dimension: int, outputs: int, dropout: float) -> nn.Sequential:
    linear = nn.Linear(dimension, outputs)
    nn.init.normal_(linear.weight, std=DEVIATION)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(nn.Dropout(dropout), linear)
