"""The nearest pools that a corpus has enough papers for, from what the errors of drawing name."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from pipeline.core.errors import InsufficientDataError
from pipeline.core.settings import Count
from pipeline.corpus.poolconfig import PoolConfig, PrefilterConfig
from pipeline.corpus.pools import draw
from pipeline.corpus.prefilter import prefilter
from pipeline.corpus.reader import AnyRows, Corpus

_TRIES = 30


def nearest(
    corpus: Corpus, configs: Sequence[PoolConfig], free: Collection[str], exclude: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Return the settings to change so that all of some pools can be drawn; None if nothing near works.

    Each shortage names a year, a number of queries, a size or a rule of the prefilter that may help, which is tried. A
    size is the most that any of the pools may have. The year changes once, and first, to the one with most queries.

    Args:
        corpus: the corpus.
        configs: settings of the pools; those of a validation pool, or with ``validation_queries``, leave room for both.
        free: names of the settings that may change.
        exclude: ids of papers that may not be queries.
    """
    changed: dict[str, Any] = {}
    for _ in range(_TRIES):
        errors = [shortage(corpus, _with(config, changed), exclude) for config in configs]
        error = next((error for error in errors if error is not None), None)
        if error is None:
            return changed
        named = error.nearest
        usable = [name for name in named if name in free and (name != "year" or "year" not in changed)]
        if not usable:
            return None
        changed[usable[0]] = named[usable[0]]
    return None


def sizes_within(sizes: Iterable[Count], most: Count) -> tuple[Count, ...]:
    """Return sizes without repetitions, of which the numbers are at most ``most``; all the papers, if it is ``all``."""
    if most == "all":
        return ("all",)
    return tuple(dict.fromkeys(size if size == "all" else min(size, most) for size in sizes))


def _with(config: PoolConfig, changed: dict[str, Any]) -> PoolConfig:
    """Return changed settings."""
    rules = {field.name for field in dataclasses.fields(PrefilterConfig)}
    of_pool = {name: value for name, value in changed.items() if name not in rules}
    if "size" in of_pool:
        of_pool["size"] = sizes_within([config.size], of_pool["size"])[0]
    of_rules = {name: value for name, value in changed.items() if name in rules}
    return dataclasses.replace(config, **of_pool, prefilter=dataclasses.replace(config.prefilter, **of_rules))


def shortage(corpus: Corpus, config: PoolConfig, exclude: Sequence[str]) -> InsufficientDataError | None:
    """Return the error of drawing a pool, and the validation pool beside it; None if there is none."""
    prefiltered, rows = prefilter(corpus.attributes, config.prefilter), corpus.rows_of(exclude)
    used: AnyRows = np.empty(0, np.int64)
    held_out = config.split == "validation" or config.validation_queries is not None
    try:
        for split in ("test", "validation") if held_out and config.queries != "all" else ("test",):
            of_split = dataclasses.replace(config, split=split)
            used = draw(corpus, of_split, prefiltered[0], rows[rows >= 0], used)[0].rows
    except InsufficientDataError as error:
        return error
    return None
