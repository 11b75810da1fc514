"""Where an OpenAlex snapshot keeps its works, and what its manifest says of them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from pipeline.core.errors import CorruptError, InputError
from pipeline.sources.base import find_files, refuse_unfinished, require_files

_PLACES = ("data/parquet/works", "data/jsonl/works", "data/works", "legacy-data/works")
_MERGED = ("data/merged_ids/works", "legacy-data/merged_ids/works")
_LEVELS = ("data", "legacy-data", "jsonl", "parquet", "works")
_MANIFESTS = ("manifest.json", "manifest")


@dataclass(frozen=True)
class Layout:
    """One copy of the works on disk.

    Attributes:
        works: folder of ``updated_date=*/part_*``.
        suffix: ``.gz`` (JSON lines) or ``.parquet``.
        merged: CSV files of merged ids; none in the layout of 2026.
    """

    works: Path
    suffix: str
    merged: tuple[Path, ...]

    @classmethod
    def find(cls, folder: Path) -> Layout:
        """Find the works below ``folder``: the snapshot's root, or the folder of any of its formats.

        Raises:
            InputError: there is none, or more than one copy.
        """
        places = {folder / place.removeprefix(above) for place in _PLACES for above in ("", "data/", "legacy-data/")}
        found = [
            (place, suffix)
            for place in (folder, *sorted(places))
            for suffix in (".gz", ".parquet")
            if next(place.glob(f"updated_date=*/[!.]*{suffix}"), None)
        ]
        if not found:
            find_files(folder, [f"{place}/updated_date=*/part_*" for place in _PLACES], "OpenAlex works")
        if len(found) > 1:
            listed = " and ".join(f"{place} ({suffix})" for place, suffix in found)
            raise InputError(f"{folder} holds the works twice: {listed}", "Give one of the two with --input")
        works, suffix = found[0]
        roots = [folder]
        while roots[-1].name in _LEVELS:
            roots.append(roots[-1].parent)
        refuse_unfinished(roots[-1])
        merged = {path for root in roots for place in _MERGED for path in (root / place).glob("[!.]*.csv*")}
        require_files(merged)
        return cls(works, suffix, tuple(sorted(merged, key=lambda path: path.name)))

    def files(self) -> list[Path]:
        """Return the files of works.

        Raises:
            CorruptError: one that the manifest lists is not there, or has another size.
        """
        paths = find_files(self.works, (f"updated_date=*/*{self.suffix}",), "OpenAlex works")
        listed = self.manifest
        missing = [name for name in listed if not (self.works / name).is_file()]
        if missing:
            raise CorruptError(
                f"{self.works} lacks {len(missing)} of the {len(listed)} files of its manifest, first {missing[0]}",
                "Fetch the rest, or remove the manifest to build from the files that are there",
            )
        for name, entry in listed.items():
            size = (self.works / name).stat().st_size
            if entry.bytes is not None and size != entry.bytes:
                raise CorruptError(
                    f"{self.works / name} has {size:,} bytes, its manifest says {entry.bytes:,}", "Fetch it again"
                )
        return paths

    @functools.cached_property
    def manifest(self) -> dict[str, Listed]:
        """What the manifest says of each file, by path below ``works``; empty where there is none."""
        for name in _MANIFESTS:
            path = self.works / name
            if path.is_file():
                return read_manifest(path.read_bytes(), str(path))
        return {}


class Listed(NamedTuple):
    """What a manifest says of one file."""

    bytes: int | None
    records: int | None
    sha256: str | None


class _Meta(msgspec.Struct):
    content_length: int | None = None
    record_count: int | None = None
    sha256: str | None = None


class _Entry(msgspec.Struct):
    url: str
    meta: _Meta = msgspec.field(default_factory=_Meta)


class _Manifest(msgspec.Struct):
    files: list[_Entry] | None = None
    entries: list[_Entry] | None = None


def read_manifest(text: bytes, where: str) -> dict[str, Listed]:
    """Return the files of works that a manifest lists, by path below the folder of works.

    Both kinds are read: ``entries`` (until 2025) and ``files`` (since 2026), with paths or ``s3://`` addresses.

    Raises:
        CorruptError: it is not a manifest.
    """
    try:
        read = msgspec.json.decode(text, type=_Manifest)
        entries = read.entries if read.files is None else read.files
        if entries is None:
            raise msgspec.ValidationError("it lists no files")
        return {
            entry.url.rpartition("works/")[2]: Listed(
                entry.meta.content_length, entry.meta.record_count, entry.meta.sha256
            )
            for entry in entries
        }
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(f"{where} is not a manifest of OpenAlex works ({error!r})", "Fetch it again") from error
