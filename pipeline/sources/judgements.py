"""Judgements (qrels) of any tool, and the judged queries of a benchmark."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

from pipeline.core.config import counted
from pipeline.core.errors import InputError
from pipeline.core.progress import warn
from pipeline.core.text import ENCODED
from pipeline.sources.base import Batch, QuerySet
from pipeline.sources.records import Tally
from pipeline.sources.triples import Form, read_triples

_MAX_GRADE = 32_767
_WHOLE = re.compile(r"\s*-?[0-9]{1,5}(\.0*)?\s*")


def _of_words(words: Sequence[str], _width: int) -> tuple[str, str, str, bool]:
    if len(words) not in (3, 4):
        raise ValueError("3 or 4 columns")
    return words[0], words[-2], words[-1], len(words) == 4 and words[1] == ENCODED


QRELS = Form(
    "qrels",
    {"grade": ("score", "grade", "relevance", "rel", "label")},
    _of_words,
    str,
    (
        "is not a judgement",
        "Each line must have query-id, corpus-id and score, or the four columns of TREC qrels, in UTF-8; "
        f"the score is an integer from -{_MAX_GRADE} to {_MAX_GRADE}",
    ),
    "Give a file of TREC qrels, BEIR's .tsv, or .json",
)

Judgement = tuple[int, tuple[str, str], int]
"""Line, row or position from 1, (query id, document id), grade."""


def read_judgements(
    qrels: Any, *, blank: bool = False, words: Mapping[str, int] | None = None, memory: float = math.inf
) -> Iterator[Judgement]:
    """Yield the judgements of a file, a mapping or a frame (:func:`pipeline.sources.triples.read_triples`).

    ``blank`` leaves out rows without a grade; ``words`` are the grades of labels in words, in lower case.

    Raises:
        InputError: the file cannot be read, needs more than ``memory`` bytes, or a line or a grade is malformed.
    """
    triples = read_triples(qrels, QRELS, memory)
    for number, query, document, grade in triples.rows:
        if not blank or (grade is not None and str(grade).strip()):
            known = (words or {}).get(str(grade).strip().casefold(), grade)
            yield number, (query, document), _grade_of(known, triples.locate(number, query, document))


def _grade_of(value: Any, place: str) -> int:
    """Return a grade; whole numbers of any type count, also ``1.0``."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = float(value)
    is_number = isinstance(value, Real) and value is not True and value is not False
    if not is_number or not abs(value) <= _MAX_GRADE or value != int(value):
        is_fraction = is_number and abs(value) <= _MAX_GRADE
        example = ", such as 6 for 0.6," if is_fraction else " in this range,"
        raise InputError(
            f"{place} is not a judgement: a grade must be a whole number from -{_MAX_GRADE:,} to {_MAX_GRADE:,}, "
            f"got {value!r:.60}",
            f"Write whole grades{example} or leave the judgement out",
        )
    return int(value)


def judged_queries(
    judged: Collection[str],
    texts: Mapping[str, str],
    grades: Mapping[tuple[str, str], int],
    tally: Tally,
    of_judgements: Batch | None = None,
    **more: Any,
) -> QuerySet:
    """Return the judged queries of a benchmark that are there, with their judgements and ``more`` attributes.

    Those that are absent, or have an empty text, are counted in ``tally``, that of the queries' file, and said.

    Raises:
        InputError: no judged query is there, or none has a text.
    """
    there = {query: text for query, text in texts.items() if query in judged}
    absent, empty = sorted({*judged} - there.keys()), sorted(query for query, text in there.items() if not text)
    if absent and not there:
        what = f"{tally.path} has none of {counted(len(absent), 'judged query')}"
        raise InputError(what, "Give the queries of this split")
    if empty and len(empty) == len(there):
        what = f"{tally.path} has no text of {counted(len(empty), 'judged query')}"
        raise InputError(what, "Name their texts 'text'")
    for reason, said, queries in (
        ("judged_query_absent", "left out: {} that {} lacks, first {!r}", absent),
        ("judged_query_empty", "without a text: {} of {}, first {!r}", empty),
    ):
        if queries:
            warn(said.format(counted(len(queries), "judged query"), tally.path, queries[0]))
            tally.noted[reason] += len(queries)
            tally.examples.append(f"{reason}: {tally.path.name}: {queries[0]}")
    total = of_judgements or Batch(read=0)
    total.add_counts(tally)
    pairs = [(query, paper, grade) for (query, paper), grade in grades.items() if query in there]
    return QuerySet(there, pairs, total.dropped + total.noted, total.examples, **more)
