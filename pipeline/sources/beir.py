"""BEIR folders: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/*.tsv`` (Thakur et al. 2021), plain or gzip."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError, nearest
from pipeline.core.text import normalise
from pipeline.sources.base import Batch, QuerySet, find_files, fingerprint
from pipeline.sources.lines import read_lines
from pipeline.sources.rows import RowBuffer


@dataclass(frozen=True)
class Beir:
    """A BEIR data set.

    Attributes:
        folder: holds ``corpus.jsonl``, ``queries.jsonl`` (``.gz`` or not) and ``qrels/``.
        split: which ``qrels/SPLIT.tsv`` judges.
    """

    folder: Path
    split: str = "test"
    source: str = field(default="beir", init=False)

    def _file(self, stem: str) -> Path:
        return find_files(self.folder, (f"{stem}.jsonl", f"{stem}.jsonl.gz"), f"BEIR {stem}")[0]

    def _qrels(self) -> Path:
        path = self.folder / "qrels" / f"{self.split}.tsv"
        if not path.is_file():
            there = [p.stem for p in find_files(self.folder, ("qrels/*.tsv",), "BEIR judgements")]
            raise InputError(f"{self.folder / 'qrels'} has no split {self.split!r}", nearest(self.split, there))
        return path

    def identity(self) -> Mapping[str, Any]:
        """Return the files' checksums and the split."""
        paths = [self._file("corpus"), self._file("queries"), self._qrels()]
        return {"files": fingerprint(paths, self.folder), "split": self.split}

    def parts(self) -> Sequence[str]:
        """Return the one file of documents."""
        return [self._file("corpus").name]

    def read(self, part: str) -> Iterator[Batch]:
        """Yield the documents as papers without year, field or references."""
        path = self.folder / part
        rows = RowBuffer(path)
        for number, line in read_lines(path):
            record = _record(line)
            if record is None:
                rows.drop("bad_json" if line is not None else "line_too_long", number, line or b"")
            elif not record.get("_id"):
                rows.drop("no_paper_id", number, line or b"")
            else:
                rows.add(str(record["_id"]), record.get("title"), record.get("text"), None, None, (), ())
            if rows.full:
                yield rows.flush()
        yield rows.flush()

    def queries(self) -> QuerySet | None:
        """Return the queries that the split judges, and their judgements."""
        judgements = list(self._judgements())
        judged = {query for query, _, _ in judgements}
        texts: dict[str, str] = {}
        path = self._file("queries")
        for number, line in read_lines(path):
            record = _record(line)
            if record is None or "_id" not in record:
                raise InputError(f"{path}:{number} is no BEIR query", "Each line needs _id and text")
            if str(record["_id"]) in judged:
                texts[str(record["_id"])] = normalise(record.get("text"))
        missing = sorted(judged - texts.keys())
        if missing:
            raise InputError(f"{path} lacks {len(missing)} judged queries, first {missing[0]!r}", "Fetch it again")
        ids = sorted(texts)
        return QuerySet(ids, [texts[i] for i in ids], judgements)

    def _judgements(self) -> Iterator[tuple[str, str, int]]:
        path = self._qrels()
        for number, line in read_lines(path):
            columns = (line or b"").decode("utf-8", "replace").rstrip("\r").split("\t")
            if number == 1 and columns[-1].strip() == "score":
                continue
            if len(columns) != 3 or not columns[2].strip().lstrip("-").isdecimal():
                raise InputError(f"{path}:{number} is no judgement", "Each line needs query-id, corpus-id, score")
            yield columns[0], columns[1], int(columns[2])


def _record(line: bytes | None) -> dict[str, Any] | None:
    if line is None:
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
