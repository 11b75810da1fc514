"""The published layout of the benchmark: ``mdcr_SPLIT.json`` and ``mdcr_SPLIT_data.jsonl``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.core import files
from pipeline.core.errors import InputError, nearest

TRUE = "true"
"""The candidate type of cited papers; every other type holds negatives."""

FieldLists = Mapping[str, Mapping[str, Sequence[str]]]
"""Candidate ids by query id and candidate type."""

BenchmarkLists = Mapping[str, FieldLists]
"""Candidate ids by field, query id and candidate type."""

SPLITS = ("val", "test")

_AS_PUBLISHED = "Give mdcr_SPLIT.json as published"


def candidates_of(by_type: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the candidates of a query, each once."""
    return {paper for ids in by_type.values() for paper in ids}


def file_names(split: str) -> tuple[str, str]:
    """Return the names of the two files of a split."""
    return f"mdcr_{split}.json", f"mdcr_{split}_data.jsonl"


def read_lists(folder: Path, split: str) -> BenchmarkLists:
    """Read the candidate lists of one split, published or home-built.

    Raises:
        InputError: the file is missing or not in the layout, has a key twice, or a query has no ``true`` candidate or
            is one itself; the message names it.
    """
    if split not in SPLITS:
        raise InputError(f"the split of a benchmark must be val or test, got {split!r}", nearest(split, SPLITS))
    path = _existing(folder, file_names(split)[0])
    lists: BenchmarkLists = files.given_json(path)
    if not isinstance(lists, dict) or not lists:
        raise InputError(f"{path} must map fields to queries", _AS_PUBLISHED)
    for field, queries in lists.items():
        if not isinstance(queries, dict):
            raise InputError(f"{path}: {field} must map query ids to candidates", _AS_PUBLISHED)
        for query, by_type in queries.items():
            _check(f"{path}: query {query} of {field}", query, by_type)
    return lists


def data_file(folder: Path, split: str) -> Path:
    """Return the file with ``paper_id``, ``title`` and ``abstract`` of the papers of a split, one a line.

    Raises:
        InputError: it is missing.
    """
    return _existing(folder, file_names(split)[1])


def _existing(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise InputError(f"a benchmark must have {name}, got none in {folder}", "Give the folder with its files")
    return folder / name


def _check(place: str, query: str, by_type: Any) -> None:
    lists = by_type.values() if isinstance(by_type, dict) else [None]
    if not all(isinstance(ids, list) and all(isinstance(paper, str) for paper in ids) for ids in lists):
        raise InputError(f"{place} must map candidate types to lists of ids", "Correct the file")
    if not by_type.get(TRUE):
        raise InputError(f"{place} has no candidate of type {TRUE!r}", "Leave the query out")
    if query in by_type[TRUE]:
        raise InputError(f"{place} has itself as candidate of type {TRUE!r}", "Leave the candidate out")
