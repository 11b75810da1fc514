"""A user's own collection: JSON lines, Parquet, tables or BibTeX, with a mapping from our columns to its own."""

from __future__ import annotations

import functools
import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import unquote

import msgspec
import numpy as np
import numpy.typing as npt

from pipeline.core.config import counted
from pipeline.core.csr import find_sorted
from pipeline.core.errors import InputError, nearest
from pipeline.core.markup import plain_latex
from pipeline.core.progress import say, warn
from pipeline.core.text import plain_doi, reference_keys
from pipeline.sources.authors import Authored
from pipeline.sources.base import find_files
from pipeline.sources.content import first_record, lines_command, read_text
from pipeline.sources.fieldmaps import ARXIV_FIELDS, FOLDED
from pipeline.sources.lists import Cells, Split, is_cut, one_id
from pipeline.sources.papers import FileRelease, Paper
from pipeline.sources.records import Tally, convert_record, open_parquet, read_columns, read_records
from pipeline.sources.tables import NOT_UTF8, read_table

COLUMNS = ("paper_id", "title", "abstract", "year", "fields", "references", "n_inbound", "doi")
"""Columns of a paper; all but ``paper_id`` are optional."""

_MAX_KEYS = 100
"""Maximum number of keys remembered from a record without id, for the error message."""

_ENCLOSED = re.compile(r'\A(?:\{(.*)\}|"(.*)")\Z', re.DOTALL)

_BLOCK = 100_000
"""Number of ids that are converted to keys at a time."""

_OTHERS = ("*.json", "*.ndjson.gz")
"""Names of files of JSON lines that are read if there are none of the usual ones."""


@dataclass(frozen=True)
class JsonLines(FileRelease):
    """A folder of JSON lines, or one file. A name ``a.b`` in ``columns`` is the key ``b`` of the object ``a``.

    Without files in the folder itself, those of its subfolders are read; ``year=2019`` is the value of a column.
    """

    source = "jsonl"
    own_columns = COLUMNS
    patterns: ClassVar[Sequence[str]] = ("*.jsonl", "*.jsonl.gz", "*.json.gz", "*.ndjson")
    contents = "jsonl files"
    by_number: ClassVar[str] = ""

    def files(self) -> list[Path]:
        """Return the files in the folder; without any, those in its subfolders, but of hidden ones (``_delta_log``)."""
        if self.folder.is_file():
            return super().files()
        others = _OTHERS if self.source == "jsonl" else ()
        for below, patterns in itertools.product(("", "**/"), filter(None, (self.patterns, others))):
            if shown := self._shown(below, patterns):
                deeper = self._shown("**/", patterns) - shown
                if not below and deeper:
                    warn(
                        f"left out: {counted(len(deeper), 'file')} in folders below {self.folder}, first {min(deeper)}"
                    )
                found = find_files(self.folder, [below + pattern for pattern in patterns], self.contents)
                return [path for path in found if path in shown]
        return find_files(self.folder, (*self.patterns, *others), self.contents)

    def _shown(self, below: str, patterns: Sequence[str]) -> set[Path]:
        found = (path for pattern in patterns for path in self.folder.glob(below + pattern) if path.name[0] != ".")
        return {path for path in found if not any(name[0] in "._" for name in path.relative_to(self.folder).parts[:-1])}

    def parts(self) -> Sequence[str]:
        """Return the files, after deciding once for all processes how lists that are texts are written."""
        if self._has_written_lists() or isinstance(self._first_references(), str):
            _ = self.lists
        return super().parts()

    def _first_references(self) -> Any:
        """Return the first references that are given within :data:`_BLOCK` records; None without any."""
        records = itertools.islice(self._records(Tally(self.files()[0], self)), _BLOCK)
        with suppress(InputError):  # the reader of the records says what is wrong
            return next(filter(None, (_lookup(record, self.names["references"]) for record in records)), None)

    def identity(self) -> Mapping[str, Any]:
        """Return the files' checksums, the mapping and the settings, and whether lists are known to be texts."""
        columns = {name: self.names[name] for name in COLUMNS}
        lists = {"lists": "texts"} if self._has_written_lists() else {}
        return {**super().identity(), "columns": columns, **lists}

    def _has_written_lists(self) -> bool:
        """Return whether the references of the first file are texts."""
        return isinstance(_lookup(first_record(self.files()[0]), self.names["references"]), str)

    def papers(self, tally: Tally) -> Iterator[Paper]:
        """Yield the records, those without an id too; mapped columns that no record has are warned of."""
        never_found = {self.names[name] for name in COLUMNS[1:] if self.columns and self.names[name] != name}
        for record in self._all_records(tally):
            if never_found:
                never_found -= {name for name in never_found if _lookup(record, name) is not None}
            paper_id = _lookup(record, self.names["paper_id"])
            if paper_id is None or paper_id == "" or paper_id != paper_id:
                yield Paper(id="")
                continue
            try:
                yield self._paper(record, tally)
            except msgspec.ValidationError as error:
                tally.drop("wrong_type", str(error))
        for name in sorted(never_found):
            tally.noted[f"column_never_found: {name}"] += 1
            warn(f"no record of {tally.path} has a {name!r}, which --columns maps")

    def _first(self, path: Path) -> Mapping[str, Any]:
        """Return the first record of a file, with all its columns."""
        return next(self._records(Tally(path, self)), {})

    def refuse_untitled(self) -> None:
        """Raise InputError, which names the columns that the first record has."""
        self._refuse(self.files()[0], "a title")

    def _refuse(self, path: Path, lacking: str, _record: object = None) -> None:
        """Raise InputError that no record of a file has an id or a title, which says what to do."""
        record, name = self._first(path), self.names["title" if lacking == "a title" else "paper_id"]
        keys = [
            f"{key}.{inner}" if inner else key
            for key, value in record.items()
            for inner in (value if isinstance(value, Mapping) and value else [""])
        ]
        if command := lines_command(path, record):
            remedy = f"Write a paper a line: {command}"
        elif {"columns", "data"} <= record.keys():
            remedy = "Write a paper a line: to_json(orient='records', lines=True) of pandas"
        elif record and all(isinstance(value, Mapping) for value in record.values()):
            remedy = "Write a paper a line, not papers by id"
        elif name in keys:
            remedy = "All its values are missing; name another with --columns"
        else:
            remedy = f"{nearest(name, keys).rstrip('?')}; use --columns{self.by_number}"
        raise InputError(f"no record of {path} has {lacking} in {name!r}; the first has {_listed(keys)}", remedy)

    def _records(self, tally: Tally) -> Iterator[dict[str, Any]]:
        return read_records(dict[str, Any], tally)

    def _all_records(self, tally: Tally) -> Iterator[dict[str, Any]]:
        """Yield the records of a file, with the columns that the names of its folders hold."""
        folders = self._folder_columns(tally.path)
        return ({**folders, **record} for record in self._records(tally)) if folders else self._records(tally)

    def _folder_columns(self, path: Path) -> dict[str, str]:
        """Return the columns in the names of a file's folders, as in ``year=2019/part-0.parquet``."""
        pairs = (part.partition("=") for part in path.parent.relative_to(self.root).parts)
        return {name: unquote(value) for name, equals, value in pairs if equals and value != _NO_VALUE}

    def _paper(self, record: Mapping[str, Any], tally: Tally) -> Paper:
        values = {name: _lookup(record, self.names[name]) for name in COLUMNS}
        paper = convert_record(values, _Record, tally)
        return Paper(
            id=one_id(paper.paper_id, ("omid",)),
            title=paper.title,
            abstract=paper.abstract,
            year=paper.year,
            fields=[FOLDED.get(name.casefold(), name) for name in self._items("fields", paper.fields, tally)],
            outbound=self._items("references", paper.references, tally),
            inbound=paper.n_inbound,
            doi=paper.doi or plain_doi(one_id(paper.paper_id)),
        )

    def _items(self, column: str, value: list[Any] | str | int | None, tally: Tally) -> list[str]:
        """Return the items of a list, or of a text that holds one."""
        if isinstance(value, str):
            if is_cut(value):
                tally.odd(f"{column} cut by NumPy", value)
            return self.lists[column].items(value)
        items = value if isinstance(value, list) else [value]
        return [text for item in items if (text := one_id(item))]

    @functools.cached_property
    def lists(self) -> Mapping[str, Split]:
        """How lists are written in the columns that hold them as texts, decided over all files; a line says it."""
        cells, keys, ids = {"references": Cells(), "fields": Cells()}, list[npt.NDArray[np.uint64]](), list[str]()
        for path in self.files():
            for record in self._all_records(Tally(path, self)):
                for column, of_column in cells.items():
                    if isinstance(cell := _lookup(record, self.names[column]), str) and cell:
                        of_column.add(cell)
                for value in (_lookup(record, self.names[name]) for name in ("paper_id", "doi")):
                    ids += {one_id(value, ("omid",)), one_id(value)}
                if len(ids) > _BLOCK:
                    keys.append(_keys(ids))
                    ids.clear()
        every = np.unique(np.concatenate([*keys, _keys(ids)]))
        references = cells["references"].decide(lambda parts: find_sorted(every, _keys(parts))[1])
        fields = cells["fields"].decide(_are_fields, (";", "|", ","))
        if fields.separator == "," and not fields.known:
            fields = Split()
        self._say(references)
        return {"references": references, "fields": fields}

    def _say(self, references: Split) -> None:
        """Print how references are written, and warn if none is found."""
        name, split = self.names["references"], references
        if split.separator:
            before = " before a DOI" if split.before_dois else ""
            say(f"{name}: lists with {split.separator!r}{before}; {split.known:,} of {split.parts:,} are papers here")
        if split.parts and not split.known:
            examples = " and ".join(f"{example!r:.60}" for example in split.examples)
            warn(f"{name}: none of {split.parts:,} items is the id or DOI of a paper here, such as {examples}")


_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"{name!s:.40}" for name in itertools.islice(names, _MAX_KEYS))


def _keys(ids: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return the keys of ids and DOIs, as references to them have."""
    return reference_keys(list(ids))


def _are_fields(names: Sequence[str]) -> npt.NDArray[np.bool_]:
    return np.array([name.casefold() in FOLDED for name in names], bool)


@dataclass(frozen=True)
class ParquetFiles(JsonLines):
    """A folder of Parquet files, or one file."""

    source = "parquet"
    patterns = ("*.parquet",)
    contents = "parquet files"

    def _has_written_lists(self) -> bool:
        schema = open_parquet(self.files()[0]).schema_arrow
        name = self.names["references"]
        return name in schema.names and str(schema.field(name).type).endswith("string")

    def _first(self, path: Path) -> Mapping[str, Any]:
        return next(read_columns(open_parquet(path).schema_arrow.names, Tally(path, self)), {})

    def _records(self, tally: Tally) -> Iterator[dict[str, Any]]:
        names = open_parquet(tally.path).schema_arrow.names
        paper_id = self.names["paper_id"]
        if not {paper_id, paper_id.partition(".")[0]} & {*names, *self._folder_columns(tally.path)}:
            raise InputError(f"{tally.path} has no column {paper_id!r}, but {_listed(names)}", nearest(paper_id, names))
        mapped = [self.names[name] for name in COLUMNS]
        return read_columns(
            [name for name in names if any(f"{path}.".startswith(f"{name}.") for path in mapped)], tally
        )


@dataclass(frozen=True)
class Tables(JsonLines):
    """A folder of CSV or TSV files with a header, or one file.

    Columns of files without header are named by their numbers: ``paper_id=0,title=1``.
    """

    source = "csv"
    patterns = ("*.csv", "*.csv.gz", "*.tsv", "*.tsv.gz")
    contents = "CSV or TSV files"
    by_number = ", by numbers if the first row is no header: paper_id=0,title=1"

    def _has_written_lists(self) -> bool:
        return True

    def _records(self, tally: Tally) -> Iterator[dict[str, Any]]:
        paper_id = self.names["paper_id"]
        return read_table(tally, lambda row: paper_id in row, header=not paper_id.isdigit())


def read_bibtex(tally: Tally) -> Iterator[dict[str, Any]]:
    """Yield the entries of a BibTeX file as plain texts by field; ``paper_id`` is the key of an entry.

    LaTeX becomes plain text, ``date`` is the year of entries without ``year``, and ``crossref`` is ignored. The file is
    held in memory. Entries that cannot be parsed are dropped.
    """
    from bibtexparser.entrypoint import parse_string
    from bibtexparser.model import DuplicateBlockKeyBlock, DuplicateFieldKeyBlock, Entry, ParsingFailedBlock

    logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)  # what it logs is counted here
    blocks = read_text(tally.path, "BibTeX")
    library = parse_string(b"".join(block or b"" for block in blocks).decode("utf-8", "surrogateescape"))
    for block in library.blocks:
        tally.line = (block.start_line or 0) + 1
        if isinstance(block, DuplicateBlockKeyBlock | DuplicateFieldKeyBlock):
            block = block.ignore_error_block  # type: ignore[assignment]  # an entry as it is written
            for field in block.fields if isinstance(block, Entry) else ():
                field.value = _ENCLOSED.sub(r"\1\2", str(field.value))
        if isinstance(block, ParsingFailedBlock):
            tally.drop("bad_bibtex", block.raw or "")
        if not isinstance(block, Entry):
            continue
        if NOT_UTF8.search(block.raw or ""):
            tally.drop("bad_utf8", (block.raw or "").encode("utf-8", "surrogateescape"))
            continue
        values = {field.key.lower(): str(field.value) for field in reversed(block.fields)}
        values = {name: text if name in ("doi", "url") else plain_latex(text) for name, text in values.items()}
        yield {"year": values.get("date"), **values, "paper_id": block.key}


@dataclass(frozen=True)
class Bibtex(JsonLines):
    """A folder of BibTeX files, or one file."""

    source = "bibtex"
    patterns = ("*.bib", "*.bib.gz")
    contents = "BibTeX files"
    _records = staticmethod(read_bibtex)


@dataclass(frozen=True)
class Arxiv(JsonLines):
    """arXiv's dump of its metadata: no references; years are those of submission, fields of the first category."""

    source = "arxiv"
    patterns = ("arxiv-metadata-oai-snapshot.json*",)
    contents = "arXiv metadata"

    def _records(self, tally: Tally) -> Iterator[dict[str, Any]]:
        for record in super()._records(tally):
            archives = [name.partition(".")[0] for name in str(record.get("categories") or "").split()[:1]]
            found = {
                "paper_id": record.get("id"),
                "year": _lookup(record, "versions.created") or record.get("update_date"),
                "fields": [ARXIV_FIELDS.get(archive, "Physics") for archive in archives],
                "doi": next(iter(str(record.get("doi") or "").split()), None),
            }
            yield record | found

    def authors(self, part: str) -> Iterator[Authored]:
        """Yield the papers of one file with the names of their authors: last, first and suffix."""
        for record in read_records(_Authored, Tally(self.root / part, self)):
            yield record.id, [(", ".join((*name, "", "")[:2]), "") for name in record.authors_parsed or ()]


class _Authored(msgspec.Struct):
    id: str = ""
    authors_parsed: list[list[str]] | None = None


class _Record(msgspec.Struct):
    paper_id: str | int
    title: str | None = None
    abstract: str | None = None
    year: int | None = None
    fields: list[str] | str | None = None
    references: list[str | int] | str | int | None = None
    n_inbound: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None
    doi: str | None = None


def _lookup(record: Any, name: str) -> Any:
    """Return the value at ``name``: a key, else a path of keys separated by dots; of a list, those of its items."""
    if isinstance(record, list):
        return [_lookup(item, name) for item in record]
    if not isinstance(record, Mapping) or name in record:
        return record[name] if isinstance(record, Mapping) else None
    steps = name.split(".")
    for end in range(len(steps) - 1, 0, -1):
        if (key := ".".join(steps[:end])) in record:
            return _lookup(record[key], ".".join(steps[end:]))
    return None
