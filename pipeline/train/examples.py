"""Training sets for sentence-transformers: Arrow tables whose texts are rendered when a batch is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import datasets  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa
from datasets.table import InMemoryTable  # type: ignore[import-untyped]

from pipeline.core.artifact import Artifact
from pipeline.core.text import stored_text
from pipeline.corpus.reader import Corpus, Text
from pipeline.encode.kinds import Transformer
from pipeline.encode.model import Role
from pipeline.encode.recipes import render
from pipeline.train.recipe import CODES, Format

Goal = Literal["triplet", "in-batch", "classes", "labels", "number"]
"""Training goal: distances of triplets, the positive in a batch, one class, several labels, or a number."""


@dataclass(frozen=True)
class Examples:
    """One training set.

    Attributes:
        name: name of the task.
        goal: training goal.
        formats: formats of the columns of texts.
        data: columns of texts and, last, ``label``.
        outputs: outputs of the linear head; 0 without a head.
    """

    name: str
    goal: Goal
    formats: tuple[Format, ...]
    data: datasets.Dataset
    outputs: int = 0

    def repeated(self, count: int) -> datasets.Dataset:
        """Return ``count`` rows; rows repeat in order."""
        return self.data.select(np.resize(np.arange(len(self.data)), count))


@dataclass(frozen=True)
class Writer:
    """Renders texts as the strings that the network reads.

    Attributes:
        model: the template; without prefixes.
        tokenizer: gives the separator.
        coded: whether texts begin with the code of their format.
    """

    model: Transformer
    tokenizer: Any
    coded: bool

    def __call__(self, title: str, abstract: str, form: Format) -> str:
        """Return the string of a paper, or of an ad-hoc query, whose text is ``title``."""
        role: Role = "query" if form == "query" else "paper"
        return (f"{CODES[form]} " if self.coded else "") + render(
            Text(title, abstract), role, self.model, self.tokenizer
        )


class _Transform:
    """Changes batches when they are read; data sets share it.

    ``datasets`` hashes the pickle of a transform whenever rows are selected. This pickle has no vocabulary or corpus.
    """

    def __init__(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._change = change

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return self._change(batch)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, ("transform",)

    def __deepcopy__(self, _: Any) -> _Transform:
        return self


def lazy(table: pa.Table, change: Callable[[dict[str, Any]], dict[str, Any]]) -> datasets.Dataset:
    """Return a memory-mapped table as a data set; ``change`` transforms batches when they are read.

    The fingerprint, which names cached results, is given since nothing is cached: ``datasets`` would pickle the table.
    """
    return datasets.Dataset(InMemoryTable(table), fingerprint="examples").with_transform(_Transform(change))


def citation_examples(triplets: Artifact, corpus: Artifact, writer: Writer, goal: Goal) -> Examples:
    """Return the triplets of an artifact of stage ``triplets``."""
    reader = Corpus(corpus)
    table = pa.concat_tables([triplets.arrow(output.path) for output in triplets.outputs("triplets-*.arrow")])

    def texts(batch: dict[str, Sequence[int]]) -> dict[str, list[str]]:
        rows = np.unique(np.concatenate([np.asarray(batch[name], np.int64) for name in batch]))
        papers = reader.take(rows, ["title", "abstract"]).to_pylist()
        written = {
            row: writer(paper["title"], stored_text(paper["abstract"]), "proximity")
            for row, paper in zip(rows.tolist(), papers, strict=True)
        }
        return {name: [written[row] for row in values] for name, values in batch.items()}

    return Examples("citations", goal, ("proximity",) * 3, lazy(table.select(["query", "positive", "negative"]), texts))
