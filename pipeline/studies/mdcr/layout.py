"""The published layout of the benchmark: ``mdcr_SPLIT.json`` and ``mdcr_SPLIT_data.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError

TRUE = "true"
"""The candidate type of cited papers; every other type holds negatives."""

Lists = Mapping[str, Mapping[str, Mapping[str, list[str]]]]
"""Candidate ids by field, query id and candidate type."""

SPLITS = ("val", "test")


@dataclass(frozen=True)
class Split:
    """One split of a benchmark.

    Attributes:
        lists: candidate ids by field, query id and candidate type.
        data: the file of its papers: ``paper_id``, ``title``, ``abstract`` in each line.
    """

    lists: Lists
    data: Path

    @property
    def types(self) -> tuple[str, ...]:
        """Types of negatives, in the order of the file."""
        found = (name for queries in self.lists.values() for lists in queries.values() for name in lists)
        return tuple(name for name in dict.fromkeys(found) if name != TRUE)


def file_names(split: str) -> tuple[str, str]:
    """Return the names of the two files of a split."""
    return f"mdcr_{split}.json", f"mdcr_{split}_data.jsonl"


def read_split(folder: Path, split: str) -> Split:
    """Read one split, published or home-built.

    Raises:
        InputError: a file is missing, is not in the layout, or a query has no ``true`` candidate; the message names it.
    """
    lists_name, data_name = file_names(split)
    path, data = folder / lists_name, folder / data_name
    for file in (path, data):
        if not file.is_file():
            raise InputError(f"{file} does not exist", f"Give a folder with {lists_name} and {data_name}")
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path} must be JSON ({error})", "Download it again") from error
    _check(path, content)
    return Split(content, data)


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


def write_lists(lists: Lists) -> str:
    """Return the content of ``mdcr_SPLIT.json``."""
    return json.dumps(lists, ensure_ascii=False) + "\n"


def write_paper(paper_id: str, title: str, abstract: str) -> str:
    """Return a line of ``mdcr_SPLIT_data.jsonl``."""
    return json.dumps({"paper_id": paper_id, "title": title, "abstract": abstract}, ensure_ascii=False) + "\n"
