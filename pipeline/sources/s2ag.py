"""Semantic Scholar Academic Graph datasets (Kinney et al. 2023): ``papers``, ``abstracts`` and ``citations``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec
import pyarrow as pa

from pipeline.core.errors import InputError, StageError, nearest, require_known
from pipeline.core.files import read_json
from pipeline.core.text import id_keys, normalise
from pipeline.sources import options
from pipeline.sources.authors import Author, Authored
from pipeline.sources.base import (
    BATCH_CHARS,
    BATCH_ROWS,
    Abstracts,
    Citations,
    PaperBatch,
    find_files,
    grouped,
)
from pipeline.sources.citations import citation_batches
from pipeline.sources.documents import first_record
from pipeline.sources.fetch import RECORD, Catalogue, Remote, ask, endpoint_of, plain_name, public_url
from pipeline.sources.fieldmaps import FOLDED, S2_SOURCES
from pipeline.sources.papers import FileRelease, Paper
from pipeline.sources.records import Tally, read_records

_T = TypeVar("_T")

_DATE = re.compile(r"(?<![0-9])(20[0-9]{2})-?(0[1-9]|1[0-2])-?([0-3][0-9])(?![0-9])")
"""Date in the name of a file: all files of a data set in a release have one."""

ENDPOINT = "https://api.semanticscholar.org/datasets/v1"
"""The Datasets API: https://api.semanticscholar.org/api-docs/datasets."""

DATASETS = ("papers", "abstracts", "citations")
"""Datasets of a corpus; authors, venues and citation contexts are not read."""


class _ExternalIds(msgspec.Struct):
    DOI: str | None = None


class _FieldOfStudy(msgspec.Struct):
    category: str | None = None
    source: str | None = None


class _Paper(msgspec.Struct):
    corpusid: int | str | None = None
    title: str | None = None
    year: int | None = None
    s2fieldsofstudy: list[_FieldOfStudy] | None = None
    externalids: _ExternalIds | None = None


class _Author(msgspec.Struct):
    authorId: str | None = None  # noqa: N815
    name: str | None = None


class _Authored(msgspec.Struct):
    corpusid: int | str | None = None
    authors: list[_Author] | None = None


class _Abstract(msgspec.Struct):
    corpusid: int | str | None = None
    abstract: str | None = None


class _Citation(msgspec.Struct, gc=False):
    citingcorpusid: int | str | None = None
    citedcorpusid: int | str | None = None


@dataclass(frozen=True)
class S2ag(FileRelease, options.S2ag):
    """A release in folders ``papers``, ``abstracts`` and ``citations``, or in files such as ``papers-*.jsonl.gz``."""

    source = "s2ag"
    record = _Paper

    def __post_init__(self) -> None:
        super().__post_init__()
        require_known(self.fields_from, S2_SOURCES, f"S2AG has no fields of study from {self.fields_from!r}")

    def _files(self, dataset: str) -> list[Path]:
        patterns = [f"{dataset}{gap}*{end}" for gap in "/-_" for end in (".jsonl.gz", ".gz", ".jsonl", ".json")]
        return find_files(self.folder, (*patterns, f"{dataset}.jsonl.gz", f"{dataset}.jsonl"), f"S2AG {dataset}")

    def files(self) -> list[Path]:
        """Return the files of the datasets, one after the other; InputError if they are of two releases."""
        paths = [path for dataset in DATASETS for path in self._files(dataset)]
        dates = sorted({"-".join(found.groups()) for path in paths if (found := _DATE.search(path.name))})
        if len(dates) > 1:
            what = f"{self.folder} holds files of {len(dates)} releases ({', '.join(dates)})"
            raise InputError(what, f"Remove those before {dates[-1]}, or give a folder with one release")
        return paths

    def stated(self) -> Mapping[str, int]:
        """Return the publisher's number of rows by table, recorded when the complete release was fetched."""
        record = read_json(self.folder / RECORD) or {}
        return {name: int(rows) for name, rows in record.get("stated", {}).items() if name in DATASETS}

    def is_joined(self) -> bool:
        """Return True: papers, abstracts and citations are tables."""
        return True

    def read(self, part: str) -> Iterator[PaperBatch | Abstracts | Citations]:
        """Yield the batches of one file."""
        if part.startswith("papers"):
            return super().read(part)
        if part.startswith("abstracts"):
            return abstract_batches(Tally(self.folder / part, self))
        tally = Tally(self.folder / part, self)
        if (first := first_record(tally.path)) and first.keys().isdisjoint(_Citation.__struct_encode_fields__):
            self._refuse(tally.path, "a citing and a cited paper", _Citation)
        return citation_batches(_citations(tally), tally)

    def papers(self, tally: Tally) -> Iterator[Paper]:
        """Yield the records of ``papers``, without abstracts and references."""
        for record in read_records(_Paper, tally):
            subjects = record.s2fieldsofstudy or ()
            names = [s.category for s in subjects if s.category and self.fields_from in ("any", s.source)]
            fields = [FOLDED.get(name.casefold(), name) for name in names]
            doi = record.externalids.DOI if record.externalids else None
            yield Paper(id=_id(record), title=record.title, year=record.year, fields=fields, doi=doi)

    def authors(self, part: str) -> Iterator[Authored]:
        """Yield the papers of one file with the ids and names of their authors."""
        records = read_records(_Authored, Tally(self.folder / part, self)) if part.startswith("papers") else ()
        for record in records:
            yield _id(record), [Author.of(author.name, author.authorId or "") for author in record.authors or ()]


def _id(record: _Paper | _Abstract | _Authored) -> str:
    return "" if record.corpusid is None else str(record.corpusid)


def abstract_batches(tally: Tally) -> Iterator[Abstracts]:
    """Yield the abstracts of a file that are not withheld."""

    def abstracts() -> Iterator[tuple[str, str]]:
        for record in read_records(_Abstract, tally):
            if not _id(record):
                tally.drop("no_paper_id")
            elif text := normalise(tally.cut(record.abstract)):
                tally.read += 1
                yield _id(record), text
            else:
                tally.drop_expected("withheld")

    for block in grouped(abstracts(), lambda abstract: len(abstract[1]), BATCH_CHARS, BATCH_ROWS):
        ids, texts = zip(*block, strict=True) if block else ((), ())
        yield Abstracts(id_keys(ids), pa.array(texts, pa.large_string()), **tally.counts())


def _citations(tally: Tally) -> Iterator[tuple[str, str]]:
    for edge in read_records(_Citation, tally):
        if edge.citingcorpusid is None or edge.citedcorpusid is None:
            tally.drop_expected("null_citing_id" if edge.citingcorpusid is None else "null_cited_id")
        else:
            tally.read += 1
            yield str(edge.citingcorpusid), str(edge.citedcorpusid)


class _Dataset(msgspec.Struct):
    name: str
    description: str = ""


class _Described(msgspec.Struct):
    release_id: str
    datasets: list[_Dataset]


class _Listing(msgspec.Struct):
    files: list[str]


class _Refusal(msgspec.Struct):
    message: str | None = None
    error: str | None = None


def catalogue(
    release: str, api_key: str | None, datasets: Iterable[str] = DATASETS, endpoint: str = ENDPOINT
) -> Catalogue:
    """Return the files of a release of the Datasets API, as ``DATASET/FILE``.

    Args:
        release: ``latest``, or a date such as ``2026-09-17``.
        api_key: sent to the API alone, not to the storage.
        datasets: their names.
        endpoint: address of the API.

    Raises:
        InputError: there is no such release or dataset, or the key is refused.
        StageError: the API cannot be reached, or does not answer as documented.
    """
    api = _Api(endpoint, api_key)
    described = api.get(f"release/{quote(release, safe='')}", _Described, release)
    name, offered = plain_name(described.release_id), [dataset.name for dataset in described.datasets]
    stated = {}
    for offer in described.datasets:
        if match := re.search(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([MB]) records", offer.description):
            stated[offer.name] = round(float(match[1]) * {"M": 1e6, "B": 1e9}[match[2]])
    remotes = []
    for dataset in datasets:
        require_known(dataset, offered, f"release {name} has no dataset {dataset!r}")
        remotes += [Remote(f"{dataset}/{file}", (dataset, file)) for file in api.addresses(name, dataset)]

    def address(remote: Remote) -> tuple[str, dict[str, str]]:
        dataset, file = remote.source
        url = api.addresses(name, dataset).get(file)  # that of the listing may have expired
        if url is None:
            raise StageError(f"release {name} no longer lists {remote.name}", "Fetch another release")
        return url, {}

    return Catalogue(f"s2ag-{name}", remotes, address, stated)


class _Api:
    def __init__(self, endpoint: str, api_key: str | None) -> None:
        self._endpoint, self._key = endpoint_of(endpoint), (api_key or "").strip()
        if not all("!" <= character <= "~" for character in self._key):
            raise InputError("the API key must be printable ASCII", "Copy it again")

    def addresses(self, release: str, dataset: str) -> dict[str, str]:
        """Return the signed addresses of the files of a dataset by file name; they expire after some hours."""
        urls = self.get(f"release/{release}/dataset/{dataset}", _Listing).files
        try:
            listed = {PurePosixPath(unquote(urlsplit(url).path)).name: url for url in urls}
        except ValueError:
            listed = {}
        if len(listed) < len(urls) or not listed:
            what = f"the list of {dataset} of {release} is empty, has a file twice or a malformed address"
            raise StageError(what, "Try again later")
        return listed

    def get(self, path: str, kind: type[_T], release: str | None = None) -> _T:
        """Return a decoded answer; ``release`` is the release that the path names, if any."""
        address = public_url(f"{self._endpoint}/{path}")
        status, content = self._ask(path)
        refusal = _decoded(content, _Refusal) or _Refusal()
        message = (refusal.message or refusal.error or f"HTTP {status}").replace(self._key or "\0", "...")
        if status in (401, 403):
            raise InputError(
                f"{address} refused the request ({message})",
                "Give a key in S2_API_KEY or with --api-key-file; they are free at "
                "https://www.semanticscholar.org/product/api",
            )
        if status == 404 and release is not None:
            suggestion = nearest(release, _decoded(self._ask("release/")[1], list[str]) or []).rstrip("?")
            raise InputError(f"there is no release {release!r}", f"{suggestion}; or ask for latest")
        values = _decoded(content, kind) if status == 200 else None
        if values is None:
            problem = "did not answer as documented" if status == 200 else f"answered HTTP {status} ({message})"
            raise StageError(f"{address} {problem}", "Try again later, or check --endpoint")
        return values

    def _ask(self, path: str) -> tuple[int, bytes]:
        return ask(f"{self._endpoint}/{path}", {"x-api-key": self._key} if self._key else {})


def _decoded(content: bytes, kind: type[_T]) -> _T | None:
    """Return the value of JSON from outside; None if it is not of type ``kind``."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
