"""Files of an OpenAlex snapshot: the layout on disk, the manifest, and the public bucket."""

from __future__ import annotations

import functools
import glob
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote, urlencode

import httpx
import msgspec

from pipeline.core.config import counted
from pipeline.core.errors import CorruptError, InputError, StageError, require_known
from pipeline.core.progress import warn
from pipeline.core.text import integer
from pipeline.sources.base import check_files, check_finished, find_files
from pipeline.sources.remote import Remote, ask, plain_name, public_url

FORMATS = {
    "jsonl": (("data/jsonl/works",), ()),
    "parquet": (("data/parquet/works",), ()),
    "legacy": (("legacy-data/works", "data/works"), ("legacy-data/merged_ids/works", "data/merged_ids/works")),
}
"""Folders of works and of merged ids in the bucket and on disk, by format; the first existing one is used. The layout
until 2025 (``legacy``) moved in 2026; later layouts have no merged ids."""

_WORKS_FOLDERS, _MERGED_FOLDERS = (
    [folder for folders in FORMATS.values() for folder in folders[kind]] for kind in (0, 1)
)
_FOLDER_NAMES = ("data", "legacy-data", "jsonl", "parquet", "works")
_API = ("*.jsonl", "*.jsonl.gz", "*.json", "*.json.gz", "*.ndjson", "*.ndjson.gz", "*.parquet")
_MANIFESTS = ("manifest.json", "manifest")


@dataclass(frozen=True)
class Layout:
    """The works of a snapshot on disk.

    Attributes:
        works: folder of ``updated_date=*/part_*``, or of answers of the API.
        patterns: names of the files below it.
        merged: CSV files of merged ids; the layout of 2026 has none.
    """

    works: Path
    patterns: tuple[str, ...]
    merged: tuple[Path, ...]

    @classmethod
    def find(cls, folder: Path) -> Layout:
        """Return the layout of the works in a snapshot, the folder of one format, answers of the API, or a file."""
        if folder.is_file():
            return cls(folder.parent, (glob.escape(folder.name),), ())
        prefixes = ("", "data/", "legacy-data/")
        folders = {folder / name.removeprefix(prefix) for name in _WORKS_FOLDERS for prefix in prefixes}
        copies = [
            (path, suffix)
            for path in (folder, *sorted(folders))
            for suffix in (".gz", ".parquet")
            if next(path.glob(f"updated_date=*/[!.]*{suffix}"), None)
        ]
        if not copies:
            find_files(folder, [*(f"{name}/updated_date=*/part_*" for name in _WORKS_FOLDERS), *_API], "OpenAlex works")
            return cls(folder, _API, ())
        if len(copies) > 1:
            found = " and ".join(f"{path} ({suffix})" for path, suffix in copies)
            raise InputError(f"{folder} holds the works twice: {found}", "Give one of the two with --input")
        works, suffix = copies[0]
        roots = [folder]
        while roots[-1].name in _FOLDER_NAMES:
            roots.append(roots[-1].parent)
        check_finished(roots[-1])
        merged = {path for root in roots for name in _MERGED_FOLDERS for path in (root / name).glob("[!.]*.csv*")}
        check_files(merged)
        return cls(works, (f"updated_date=*/*{suffix}",), tuple(sorted(merged, key=lambda path: path.name)))

    @functools.cached_property
    def files(self) -> list[Path]:
        """Files of works, those of the newest partition first.

        Files that the manifest lacks are of an earlier snapshot: they are left out, with a line. CorruptError if a file
        of the manifest is missing or has another size.
        """
        paths = find_files(self.works, self.patterns, "OpenAlex works")
        paths.sort(key=lambda path: path.parent.name, reverse=True)  # stable: files of a partition keep their order
        listed = self.manifest
        missing = [name for name in listed if not (self.works / name).is_file()]
        if missing:
            raise CorruptError(
                f"{self.works} lacks {len(missing)} of the files of its manifest, first {missing[0]}",
                "Fetch the rest, or remove the manifest to build from the files that are there",
            )
        for name, entry in listed.items():
            size = (self.works / name).stat().st_size
            if entry.bytes is not None and size != entry.bytes:
                raise CorruptError(
                    f"{self.works / name} has {size:,} bytes, its manifest says {entry.bytes:,}", "Fetch it again"
                )
        names = {path: path.relative_to(self.works).as_posix() for path in paths}
        stale = [path for path in paths if listed and names[path] not in listed]
        if stale:
            left_out = counted(len(stale), "file")
            warn(f"left out: {left_out} that the manifest of {self.works} lacks, first {names[stale[0]]}")
        return [path for path in paths if path not in stale]

    @functools.cached_property
    def may_repeat(self) -> bool:
        """Whether a work may be in several partitions: OpenAlex moves what changes, but copies may keep old files."""
        return not self.manifest and len({path.parent for path in self.files}) > 1

    @functools.cached_property
    def manifest(self) -> dict[str, Listed]:
        """Entries of the manifest by path below ``works``; empty if there is no manifest."""
        for name in _MANIFESTS:
            path = self.works / name
            if path.is_file():
                return read_manifest(path.read_bytes(), str(path))
        return {}


class Listed(msgspec.Struct, rename={"bytes": "content_length", "records": "record_count"}):
    """A manifest's entry of one file."""

    bytes: int | None = None
    records: int | None = None
    sha256: str | None = None


class _Entry(msgspec.Struct):
    url: str
    meta: Listed = msgspec.field(default_factory=Listed)


class _Manifest(msgspec.Struct):
    files: list[_Entry] | None = None
    entries: list[_Entry] | None = None


def read_manifest(text: bytes, where: str) -> dict[str, Listed]:
    """Return the entries of a manifest by path below the folder of works; CorruptError if it is not a manifest.

    Both layouts are read: ``entries`` (until 2025) and ``files`` (since 2026), with paths or ``s3://`` addresses.
    """
    try:
        manifest = msgspec.json.decode(text, type=_Manifest)
        entries = manifest.entries if manifest.files is None else manifest.files
        if entries is None:
            raise msgspec.ValidationError("it lists no files")
        return {entry.url.rpartition("works/")[2]: entry.meta for entry in entries}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(f"{where} is not a manifest of OpenAlex works ({error!r})", "Fetch it again") from error


ENDPOINT = "https://openalex.s3.amazonaws.com"

_MAX_PAGES = 10_000
"""Maximum number of pages of a listing: ten million objects."""

_NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"


class S3Object(NamedTuple):
    """An object of a listing."""

    key: str
    bytes: int
    etag: str
    modified: str


def list_objects(session: httpx.Client, bucket: str, prefix: str, *, page: int = 1_000) -> Iterator[S3Object]:
    """Yield the objects below a prefix of a bucket (ListObjectsV2, page by page)."""
    query = {"list-type": "2", "prefix": prefix, "max-keys": str(page)}
    tokens = set[str]()
    address = public_url(bucket)
    for _ in range(_MAX_PAGES):
        answer = ask(session, f"{bucket}/?{urlencode(query)}")
        if answer.status_code != 200:
            raise StageError(f"{address} does not list {prefix} (HTTP {answer.status_code})", "Check --endpoint")
        try:
            root = ET.fromstring(answer.content)  # noqa: S314  # expat refuses entity bombs since 2.4.1
            if not root.tag.endswith("ListBucketResult"):
                raise ValueError(root.tag)
            for entry in root.iter(f"{_NAMESPACE}Contents"):
                key, size, etag, modified = (
                    entry.findtext(f"{_NAMESPACE}{name}", "") for name in ("Key", "Size", "ETag", "LastModified")
                )
                yield S3Object(key, integer(size), etag, modified)
        except (ET.ParseError, ValueError, LookupError) as error:  # of an unknown encoding
            raise StageError(
                f"{address} did not answer with a listing of {prefix} ({error})", "Check --endpoint"
            ) from error
        token = root.findtext(f"{_NAMESPACE}NextContinuationToken")
        if not token:
            return
        if token in tokens:
            raise StageError(f"{address} repeats a page of its listing of {prefix}", "Check --endpoint")
        tokens.add(token)
        query["continuation-token"] = token
    raise StageError(f"{address} lists {prefix} on more than {_MAX_PAGES:,} pages", "Check --endpoint")


class OpenAlexCatalogue:
    """One format (:data:`FORMATS`) of the current snapshot in the bucket."""

    def __init__(self, session: httpx.Client, kind: str, endpoint: str = ENDPOINT) -> None:
        require_known(kind, FORMATS, f"there is no format {kind!r} of the snapshot")
        self._session, self._endpoint, self._format = session, endpoint.rstrip("/"), kind
        works, merged = FORMATS[kind]
        self._works = self._first_listed(works)
        if not self._works:
            raise InputError(f"{public_url(endpoint)} holds no {kind} works", f"Choose another of {', '.join(FORMATS)}")
        self._merged = self._first_listed(merged)

    @property
    def name(self) -> str:
        """Name of the snapshot: its format and the date of its newest file."""
        return plain_name(f"openalex-{self._format}-{max(file.modified for file in self._works)[:10]}")

    def files(self) -> list[Remote]:
        """Return the files of works, their manifest and the merged ids, under their names in the bucket."""
        manifests = [file for file in self._works if PurePosixPath(file.key).name in _MANIFESTS]
        sha256_of, remotes = dict[str, str | None](), list[Remote]()
        for stored in manifests:
            answer = ask(self._session, f"{self._endpoint}/{quote(stored.key)}")
            if answer.status_code != 200:
                raise StageError(f"{stored.key} cannot be read (HTTP {answer.status_code})", "Try again later")
            sha256_of |= {name: entry.sha256 for name, entry in read_manifest(answer.content, stored.key).items()}
        for key, size, etag, _ in (*self._merged, *self._works):
            md5 = re.fullmatch(r'"?([0-9a-f]{32})"?', etag)
            sha256 = sha256_of.get(key.rpartition("works/")[2])
            remotes.append(Remote(key, f"{self._endpoint}/{quote(key)}", size, md5[1] if md5 else None, sha256))
        return remotes

    def renewed(self, remote: Remote) -> Remote:
        """Return the file if it is unchanged. InputError if the snapshot was replaced by the next one."""
        stored = list_objects(self._session, self._endpoint, remote.name)
        if (remote.name, remote.bytes) not in [(file.key, file.bytes) for file in stored]:
            raise InputError(
                f"{remote.name} is not in the bucket any more: the snapshot was replaced while it was being fetched",
                "Run the same command again to fetch the new snapshot, into another folder",
            )
        return remote

    def _first_listed(self, folders: tuple[str, ...]) -> list[S3Object]:
        for folder in folders:
            stored = list_objects(self._session, self._endpoint, f"{folder}/")
            data = [file for file in stored if re.search(r"(\.gz|\.parquet|/manifest|/manifest\.json)$", file.key)]
            if any(file.key.endswith((".gz", ".parquet")) for file in data):
                return data
        return []
