"""The fields of a corpus that have enough papers for a benchmark."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import LackError
from pipeline.core.schema import NO_YEAR
from pipeline.core.task import Task
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.prefilter import has_text, prefilter
from pipeline.corpus.queries import choose_queries, field_cited
from pipeline.corpus.reader import Corpus
from pipeline.stages.selection import Selection


class FieldPools(NamedTuple):
    """The pools of one field.

    Attributes:
        field: its name.
        test: the pool of its test queries.
        val: the pool of its validation queries.
    """

    field: str
    test: Task
    val: Task


def field_pools(
    workspace: Workspace, corpus: Artifact, selections: Sequence[Selection]
) -> tuple[list[FieldPools], dict[str, str]]:
    """Return the pools of the fields that have enough queries, and why each other field is left out.

    A field whose cited papers are fewer than the size takes them all, as the paper does for Art, History and
    Philosophy. Nothing is made.

    Args:
        workspace: published pools are not checked again.
        corpus: where the papers are.
        selections: of one field, one size, one sample and split ``test`` each.
    """
    opened = Corpus(corpus)
    found, left_out = [], {}
    for chosen in selections:
        (field,), (size,) = chosen.fields, chosen.sizes
        if size != "all" and _available(opened, field, chosen) < size:
            chosen = dataclasses.replace(chosen, sizes=("all",))
        (test,) = chosen.pools(corpus)
        (val,) = dataclasses.replace(chosen, split="validation").pools(corpus)
        try:
            if not workspace.runner.published(val):
                _check(opened, test.config, val.config)
            found.append(FieldPools(field, test, val))
        except LackError as error:
            left_out[field] = error.what
    return found, left_out


def _available(corpus: Corpus, field: str, chosen: Selection) -> int:
    """Return how many papers a field's pool can draw from."""
    year = corpus.attributes["year"]
    in_time = (year <= (chosen.year or 0)) & (year != NO_YEAR)
    return int(np.count_nonzero(field_cited(corpus, field) & has_text(corpus.attributes, chosen.prefilter) & in_time))


def _check(corpus: Corpus, test: PoolConfig, val: PoolConfig) -> None:
    """Choose the queries of both splits.

    Raises:
        LackError: there are too few.
    """
    kept = prefilter(corpus.attributes, test.prefilter)[0]
    rows = choose_queries(corpus, test, kept, np.empty(0, np.int64)).rows
    choose_queries(corpus, val, kept, rows.astype(np.int64))
