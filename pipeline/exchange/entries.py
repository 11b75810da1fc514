"""The entries of runs of any tool, and the names of their files.

A malformed line, a score that is not a finite number, or an id of another type is an error with its location.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.core.progress import say
from pipeline.core.text import ENCODED
from pipeline.core.text import number as decimal
from pipeline.sources.triples import Form, read_triples

MEMORY = 2**31
"""Default of the approximate memory for reading a run, in bytes."""

_ENDINGS = (
    *("run", "trec", "txt", "tsv", "csv", "json", "jsonl", "ndjson", "parquet", "parq"),
    *("qrels", "qrel", "res", "results", "out", "gz"),
)
"""Endings of file names that are no part of a name."""


def _of_words(words: Sequence[str], width: int) -> tuple[str, str, str, bool]:
    if width == 3:
        query, document, score = words
        return query, document, score, False
    query, mark, document, _, score, _ = words
    return query, document, score, mark == ENCODED


RUN = Form(
    "run",
    {"score": ("score",), "rank": ("rank",)},
    _of_words,
    decimal,
    (
        "must be 'query Q0 document rank score tag' or 'query document score'",
        "Write these columns with white space between them, or a header that names them",
    ),
    "Give a TREC run, or a file that ends in .json, .jsonl or .parquet; .gz may follow",
)


@dataclass(frozen=True)
class Entries:
    """The entries of a run, in its order.

    Attributes:
        queries: query id of each entry.
        documents: document id of each entry.
        scores: float64 ``[n]``, finite as float32.
        locate: returns the location of an entry, such as ``my.run:7``.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    scores: npt.NDArray[np.float64]
    locate: Callable[[int], str]


def name_of(path: Path) -> str:
    """Return the name of a file without known endings: ``input.uic0301`` of ``input.uic0301.gz``."""
    name = path.name
    while (parts := name.rpartition("."))[0] and parts[2].lower() in _ENDINGS:
        name = parts[0]
    return name


def labelled_file(text: str | Path) -> tuple[str, Path]:
    """Return label and path of ``FILE`` or ``LABEL=FILE``; without a label, the name of the file (:func:`name_of`)."""
    path = Path(text)
    if isinstance(text, Path) or path.exists():
        return name_of(path), path
    label, equals, file = text.partition("=")
    return (label, Path(file)) if label and equals else (name_of(path), path)


def read_entries(run: Any, memory: int = MEMORY) -> Entries:
    """Return the entries of a run, of any pool (:func:`pipeline.sources.triples.read_triples`).

    Raises:
        InputError: it cannot be read, has no entry, or has a score that is not a finite float32 number.
    """
    triples = read_triples(run, RUN, memory)
    ids, queries, documents = dict[str, str](), list[str](), list[str]()
    scores, numbers = array("d"), array("q")
    for number, query, document, score in triples.rows:
        numbers.append(number)
        queries.append(ids.setdefault(query, query))  # one string object for each distinct id
        documents.append(ids.setdefault(document, document))
        if isinstance(score, bool) or not isinstance(score, Real):
            what = f"{triples.locate(number, query, document)}: the score must be a number, got {score!r:.60}"
            raise InputError(what, "Write the run again")
        scores.append(_float(score))
    if not scores:
        what = f"the run{f' {run}' if isinstance(run, Path) else ''} must have an entry, got none"
        raise InputError(what, "Write the run again")

    def locate(entry: int) -> str:
        return triples.locate(numbers[entry], queries[entry], documents[entry])

    values = np.asarray(scores, np.float64) + 0.0  # no negative zero
    with np.errstate(over="ignore"):
        bad = np.flatnonzero(~np.isfinite(values.astype(np.float32)))
    if len(bad):
        raise InputError(
            f"{locate(int(bad[0]))}: a score must be a finite float32 number (bad scores: {len(bad):,})",
            "Remove the entry, or give it a finite score",
        )
    return Entries(queries, documents, _by_rank(run, queries, values) if triples.may_be_ranks else values, locate)


def _float(value: Real) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _by_rank(run: Path, queries: Sequence[str], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return numbers as scores, negative, as rank 1 is best, if those of each query are 1, 2, 3 and so on.

    Raises:
        InputError: they are 1 to n of each query in mixed order, which may be ranks or scores.
    """
    numbers_of: dict[str, list[float]] = {}
    for query, number in zip(queries, values.tolist(), strict=True):
        numbers_of.setdefault(query, []).append(number)
    lists = list(numbers_of.values())
    if not all(sorted(numbers) == list(range(1, len(numbers) + 1)) for numbers in lists):
        return values
    if all(numbers == sorted(numbers) for numbers in lists):
        say(f"{run}: the numbers of each query are 1, 2, 3 and so on, and were read as ranks")
        return -values
    if all(numbers == sorted(numbers, reverse=True) for numbers in lists):
        return values
    raise InputError(
        f"{run} must tell ranks from scores, but each query has the numbers 1 to n in mixed order",
        "Write the six columns of TREC, or sort each query by rank",
    )
