"""The files that vectors made elsewhere are in, and their identity."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipeline.core.config import digest
from pipeline.core.errors import InputError
from pipeline.sources.base import check_files, check_finished, find_files, fingerprint

COLUMNS = (".parquet", ".arrow", ".feather")
ARRAYS = (".npy", ".npz")
LINES = (".jsonl", ".ndjson", ".gz")


class VectorFile(NamedTuple):
    """One file of vectors; ``ids`` is the text file beside a ``.npy``."""

    path: Path
    ids: Path | None = None


def find(place: Path) -> list[VectorFile]:
    """Return the files of vectors in a folder, or the one file.

    A folder of the Academic Graph's datasets may stand for the ``embeddings-*`` folder in it.

    Raises:
        InputError: there is no such file, its format is unknown, or a ``.npy`` has no ids beside it.
    """
    if place.is_dir():
        for parent in (place, place.parent):
            check_finished(parent)
        inside = sorted(place.glob("embeddings-*/"))
        if inside and not any(path.suffix in (*COLUMNS, *ARRAYS, *LINES) for path in place.iterdir()):
            if len(inside) > 1:
                names = ", ".join(folder.name for folder in inside)
                raise InputError(f"{place} must hold one model's vectors, got {names}", "Name one of these folders")
            place = inside[0]
        paths = find_files(place, [f"*{end}" for end in (*COLUMNS, *ARRAYS, *LINES)], "vectors")
    else:
        paths = [place]
        if not place.exists():
            raise InputError(f"{place} must be a file or folder of vectors, got nothing there", "Correct the path")
    check_files(paths)
    return [_vector_file(path) for path in paths]


def _vector_file(path: Path) -> VectorFile:
    if path.suffix not in (*COLUMNS, *ARRAYS, *LINES):
        endings = ", ".join((*COLUMNS, *ARRAYS, ".jsonl", ".jsonl.gz"))
        raise InputError(f"{path} must be a file of vectors, got the ending {path.suffix!r}", f"Known: {endings}")
    if path.suffix != ".npy":
        return VectorFile(path)
    ids = path.with_suffix(".ids.txt")
    if not ids.is_file():
        raise InputError(f"{path} must have its ids in {ids.name}, got no such file", "Write it: one id a line")
    return VectorFile(path, ids)


def content(files: Sequence[VectorFile]) -> str:
    """Return ``sha256:`` and a digest of what the files hold; large gzip files are sampled, as those of releases."""
    stamps = tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for file in files for path in file if path)
    checksums = _checksums(stamps)
    return "sha256:" + digest(sorted([file.path.suffix, *(checksums[path] for path in file if path)] for file in files))


@functools.cache
def _checksums(stamps: tuple[tuple[Path, int, int], ...]) -> dict[Path, str]:
    """Return the checksum of each path; size and time only show when to read it again."""
    paths = [path for path, _, _ in stamps]
    return dict(zip(paths, fingerprint(paths, Path(paths[0].anchor or ".")).values(), strict=True))
