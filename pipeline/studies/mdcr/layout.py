"""The published layout of the benchmark: ``mdcr_SPLIT.json`` and ``mdcr_SPLIT_data.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline.core import files
from pipeline.core.errors import InputError, nearest

TRUE = "true"
"""The candidate type of cited papers; every other type holds negatives."""

Lists = Mapping[str, Mapping[str, Mapping[str, list[str]]]]
"""Candidate ids by field, query id and candidate type."""

SPLITS = ("val", "test")


def candidates_of(by_type: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the candidates of a query, each once."""
    return {paper for ids in by_type.values() for paper in ids}


def file_names(split: str) -> tuple[str, str]:
    """Return the names of the two files of a split."""
    return f"mdcr_{split}.json", f"mdcr_{split}_data.jsonl"


def read_lists(folder: Path, split: str) -> Lists:
    """Read the candidate lists of one split, published or home-built.

    Raises:
        InputError: the file is missing or not in the layout, has a key twice, or a query has no ``true`` candidate or
            is one itself; the message names it.
    """
    if split not in SPLITS:
        raise InputError(f"the split of a benchmark must be val or test, got {split!r}", nearest(split, SPLITS))
    path = _existing(folder, file_names(split)[0])
    content = files.given_json(path)
    _check(path, content)
    lists: Lists = content
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


def _check(path: Path, content: Any) -> None:
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path} must map fields to queries", "Give mdcr_SPLIT.json as published")
    for field, queries in content.items():
        if not isinstance(queries, dict):
            raise InputError(f"{path}: {field} must map query ids to candidates", "Give mdcr_SPLIT.json as published")
        for query, lists in queries.items():
            place = f"{path}: query {query} of {field}"
            whole = isinstance(lists, dict) and all(
                isinstance(ids, list) and all(isinstance(each, str) for each in ids) for ids in lists.values()
            )
            if not whole:
                raise InputError(f"{place} must map candidate types to lists of ids", "Correct the file")
            if not lists.get(TRUE):
                raise InputError(f"{place} has no candidate of type {TRUE!r}", "Leave the query out")
            if query in lists[TRUE]:
                raise InputError(f"{place} has itself as candidate of type {TRUE!r}", "Leave the candidate out")


def write_lists(lists: Lists) -> str:
    """Return the content of ``mdcr_SPLIT.json``."""
    return json.dumps(lists, ensure_ascii=False) + "\n"


def write_paper(paper_id: str, title: str, abstract: str) -> str:
    """Return a line of ``mdcr_SPLIT_data.jsonl``."""
    return json.dumps({"paper_id": paper_id, "title": title, "abstract": abstract}, ensure_ascii=False) + "\n"
