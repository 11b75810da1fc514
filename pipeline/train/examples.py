"""Training sets as sentence-transformers reads them: Arrow tables, whose texts are made when a batch is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import datasets  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa
from datasets.table import InMemoryTable  # type: ignore[import-untyped]

from pipeline.core.artifact import Artifact
from pipeline.core.text import stored_text
from pipeline.corpus.reader import Corpus, Text
from pipeline.encode.recipes import render
from pipeline.encode.spec import Role, TransformerSpec
from pipeline.train.recipe import CODES, Format

Goal = Literal["triplet", "in-batch", "classes", "labels", "number"]
"""What is learnt: distances of triplets, the positive among a batch, one class, several labels, or a number."""


@dataclass(frozen=True)
class Examples:
    """One training set.

    Attributes:
        name: of the task.
        goal: what is learnt.
        formats: the format of each column of texts, in order.
        data: rows with texts and, last, ``label``.
        outputs: numbers that a linear head gives; 0 without a head.
    """

    name: str
    goal: Goal
    formats: tuple[Format, ...]
    data: datasets.Dataset
    outputs: int = 0

    def repeated(self, count: int) -> datasets.Dataset:
        """Return ``count`` rows: all rows as often as they fit, and the first ones once more."""
        return self.data.select(np.resize(np.arange(len(self.data)), count))


@dataclass(frozen=True)
class Writer:
    """Makes the string that the network reads of a text.

    Attributes:
        spec: how title and abstract are joined, without any prefix.
        tokenizer: its separator is used.
        coded: whether each text begins with the code of its format.
    """

    spec: TransformerSpec
    tokenizer: Any
    coded: bool

    def __call__(self, title: str, abstract: str, form: Format) -> str:
        """Return the text of a paper, or of an ad-hoc query, which is all title."""
        role: Role = "query" if form == "query" else "paper"
        return (f"{CODES[form]} " if self.coded else "") + render(
            Text(title, abstract), role, self.spec, self.tokenizer
        )


def lazy(table: pa.Table, change: Callable[[dict[str, Any]], dict[str, Any]]) -> datasets.Dataset:
    """Return a table on disk as a data set, whose rows are changed when they are read."""
    return datasets.Dataset(InMemoryTable(table)).with_transform(change)


def citation_examples(triplets: Artifact, corpus: Artifact, writer: Writer, goal: Goal) -> Examples:
    """Return the triplets, or pairs, of an artifact of stage ``triplets``."""
    reader = Corpus(corpus)
    table = pa.concat_tables([triplets.arrow(output.path) for output in triplets.outputs("triplets-*.arrow")])
    columns = ["query", "positive", *([] if table.column("negative").null_count else ["negative"])]

    def texts(batch: dict[str, Sequence[int]]) -> dict[str, list[str]]:
        rows = np.unique(np.concatenate([np.asarray(batch[name], np.int64) for name in batch]))
        papers = reader.take(rows, ["title", "abstract"]).to_pylist()
        written = {
            row: writer(paper["title"], stored_text(paper["abstract"]), "proximity")
            for row, paper in zip(rows.tolist(), papers, strict=True)
        }
        return {name: [written[row] for row in values] for name, values in batch.items()}

    formats = tuple[Format, ...]("proximity" for _ in columns)
    return Examples("citations", goal, formats, lazy(table.select(columns), texts))


def described(examples: Sequence[Examples]) -> Mapping[str, int]:
    """Return the number of rows of each training set."""
    return {each.name: len(each.data) for each in examples}
