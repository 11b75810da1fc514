"""Files of an OpenAlex snapshot: the layout on disk, the manifest, and the public bucket."""

from __future__ import annotations

import functools
import glob
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import msgspec

from pipeline.core.config import counted
from pipeline.core.errors import CorruptError, InputError, StageError, require_known
from pipeline.core.progress import warn
from pipeline.sources.base import check_files, check_finished, find_files
from pipeline.sources.fetch import Catalogue, Remote, ask, endpoint_of, plain_name, public_url, reason_of, within

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

_LISTING_SECONDS, _MAX_OBJECTS = 600.0, 1_000_000
_LISTED = re.compile(r".*(\.gz|\.parquet|/manifest|/manifest\.json)")
"""Names of data files and manifests."""


def catalogue(kind: str, endpoint: str = ENDPOINT) -> Catalogue:
    """Return the files of works, their manifest and the merged ids of the current snapshot, by their names in S3.

    Args:
        kind: one of :data:`FORMATS`.
        endpoint: address of the bucket.

    Raises:
        InputError: the bucket has no such works.
        StageError: the bucket cannot be reached, or refuses.
    """
    require_known(kind, FORMATS, f"there is no format {kind!r} of the snapshot")
    endpoint = endpoint_of(endpoint)
    works, merged = (_first_listed(endpoint, folders) for folders in FORMATS[kind])
    if not works:
        raise InputError(f"{public_url(endpoint)} holds no {kind} works", f"Choose another of {', '.join(FORMATS)}")
    sha256_of: dict[str, str | None] = {}
    for key in (key for key in works if PurePosixPath(key).name in _MANIFESTS):
        _, manifest = ask(f"{endpoint}/{quote(key)}", {})
        sha256_of |= {name: entry.sha256 for name, entry in read_manifest(manifest, key).items()}
    remotes = [
        Remote(key, found["e_tag"], found["size"], sha256=sha256_of.get(key.rpartition("works/")[2]))
        for key, found in (*merged.items(), *works.items())
    ]

    def address(remote: Remote) -> tuple[str, dict[str, str]]:
        return f"{endpoint}/{quote(remote.name)}", {"If-Match": remote.source} if remote.source else {}

    date = max(found["last_modified"] for found in works.values())
    return Catalogue(plain_name(f"openalex-{kind}-{date:%Y-%m-%d}"), remotes, address)


def _first_listed(endpoint: str, folders: tuple[str, ...]) -> dict[str, Any]:
    """Return what obstore says of the data files and manifests of the first folder that has data, by name."""
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    bucket = S3Store(
        "openalex",
        endpoint=endpoint,
        virtual_hosted_style_request=True,  # the address has the bucket's name
        skip_signature=True,
        region="us-east-1",
        client_options={"allow_http": True, "timeout": "60 seconds"},
        retry_config={"max_retries": 6},
    )

    def listed(folder: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for chunk in obstore.list(bucket, folder, chunk_size=1_000):
            found |= {each["path"]: each for each in chunk if _LISTED.fullmatch(each["path"])}
            if len(found) > _MAX_OBJECTS:
                raise ValueError(f"it has more than {_MAX_OBJECTS:,} objects")
        return dict(sorted(found.items()))

    for folder in folders:
        what = f"the listing of {folder}"
        try:
            found = within(_LISTING_SECONDS, what, partial(listed, folder))
        except (BaseError, ValueError, OSError) as error:
            raise StageError(
                f"{what} does not come ({reason_of(error)})", "Check the network and --endpoint"
            ) from error
        if any(key.endswith((".gz", ".parquet")) for key in found):
            return found
    return {}
