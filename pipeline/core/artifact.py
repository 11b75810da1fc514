"""Published artifacts, and the check of their files against the manifest."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from pipeline.core import files
from pipeline.core.config import SHORT_ID, folder_name, identity
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.manifest import MANIFEST, Manifest, Output
from pipeline.core.progress import warn

NUMBER = "runs/number"
"""File of a workspace with the number of its newest artifact."""

_MISSING = (0, -1, 0)

_verified: dict[Path, tuple[int, int, int]] = {}
"""Stamps of the files whose checksum this process has verified."""

_Listed = TypeVar("_Listed")
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class Artifact:
    """A folder with a manifest."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path) -> Artifact:
        """Open the artifact in a folder; raise InputError if there is none, CorruptError if its manifest is damaged."""
        if not (path / MANIFEST).is_file():
            raise InputError(
                f"{path} holds no artifact (no {MANIFEST})", "Make it again with --repair, or remove the folder"
            )
        manifest = Manifest.read(path)
        expected = identity(manifest.stage, manifest.stage_version, manifest.config, manifest.inputs)
        if manifest.id != expected or path.name != folder_name(manifest.slug, expected):
            raise CorruptError(
                f"{path / MANIFEST} is the manifest of {folder_name(manifest.slug, expected)}",
                "Put the folder back where it was, or run the command that makes it with --repair",
            )
        return cls(path, manifest)

    @property
    def id(self) -> str:
        """Identity, 64 hex digits."""
        return self.manifest.id

    @property
    def name(self) -> str:
        """Folder name: slug and short identity."""
        return self.path.name

    @property
    def slug(self) -> str:
        """Readable name, as that of its task."""
        return self.manifest.slug

    @property
    def config(self) -> Mapping[str, Any]:
        """Settings as plain data, which ``canonical`` makes of those of its task."""
        return self.manifest.config

    def outputs(self, pattern: str = "*") -> list[Output]:
        """Return the outputs whose path matches ``pattern``, sorted by path."""
        return sorted((o for o in self.manifest.outputs if Path(o.path).match(pattern)), key=lambda o: o.path)

    def file(self, name: str) -> Path:
        """Return the path of an output after checking its size and SHA-256 (once a process).

        Raises:
            CorruptError: it is missing or differs.
        """
        path, stamp = self.path / name, _stamp(self.path / name)
        output = next((output for output in self.manifest.outputs if output.path == name), None)
        if output is None:
            raise CorruptError(f"{self.path} has no file {name}", "Run the stage again with --repair")
        if stamp == _MISSING or _verified.get(path) != stamp:
            if not matches(self.path, output):
                state = "is missing" if stamp == _MISSING else "does not match its recorded checksum"
                raise CorruptError(
                    f"{path} {state} ({self.manifest.stage} {self.name})",
                    "Run the same command with --repair to rebuild it alone",
                )
            _verified[path] = stamp
        return path

    def arrow(self, name: str) -> pa.Table:
        """Verify an Arrow output and return it memory-mapped."""
        return files.read_arrow(self.file(name))

    def verify(self) -> None:
        """Check all outputs by :meth:`file`."""
        for output in self.manifest.outputs:
            self.file(output.path)

    def damaged(self) -> list[str]:
        """Return the paths of the outputs that are missing or differ from the manifest."""
        return [o.path for o in self.manifest.outputs if not matches(self.path, o)]

    def complete(self) -> bool:
        """Return whether all outputs exist with their recorded sizes; stages check contents when they read them."""
        return all(_stamp(self.path / o.path)[1] == o.bytes for o in self.manifest.outputs)


def matches(folder: Path, output: Output) -> bool:
    """Return whether an output is on disk with its recorded size and checksum."""
    path = folder / output.path
    return _stamp(path)[1] == output.bytes and files.sha256(path) == output.sha256


def published(parent: Path) -> Iterable[Artifact]:
    """Yield the artifacts below ``parent``, sorted by name, for listings (:func:`readable`).

    Use :func:`opened` for artifacts that decide a figure.
    """
    return readable(_folders(parent), Artifact.open)


def readable(listing: Iterable[_Listed], read: Callable[[_Listed], _Read]) -> Iterator[_Read]:
    """Yield what ``read`` returns for each place of a listing; skip what it cannot read, with one line.

    ``read`` raises InputError, with reason and remedy.
    """
    for place in listing:
        try:
            found = read(place)
        except InputError as error:
            path = place.path if isinstance(place, Artifact) else None
            line = f"{path}: {error}" if path and path.name not in error.what else str(error)
            warn(f"left out: {line}")
        else:
            yield found


def opened(parent: Path) -> list[Artifact]:
    """Return the artifacts below ``parent``, sorted by name; raise InputError if one cannot be read."""
    return [Artifact.open(folder) for folder in _folders(parent)]


def oldest_first(artifacts: Iterable[Artifact]) -> list[Artifact]:
    """Return artifacts of a workspace in the order in which they were made (:attr:`Manifest.order`)."""
    return sorted(artifacts, key=lambda artifact: artifact.manifest.order)


def next_number(root: Path) -> int:
    """Return the number of a new artifact of a workspace, which is above those of all others."""
    (root / NUMBER).parent.mkdir(exist_ok=True)
    with (root / NUMBER).open("a+b") as handle:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        handle.seek(0)
        if not (last := handle.read()).isdigit():
            folders = sorted(manifest.parent for manifest in root.rglob(MANIFEST))
            last = b"%d" % max((one.manifest.order[0] for one in readable(folders, Artifact.open)), default=0)
        handle.truncate(0)
        handle.write(b"%d" % (int(last) + 1))
    return int(last) + 1


def _folders(parent: Path) -> list[Path]:
    """Return the folders of the artifacts below ``parent``, including damaged ones and those without a manifest."""
    named = parent.glob(f"[!.]*-{'[0-9a-f]' * SHORT_ID}/")
    return sorted({*named, *(manifest.parent for manifest in parent.glob(f"[!.]*/{MANIFEST}"))})


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return inode, size and modification time of a file, or :data:`_MISSING`."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return _MISSING
    return status.st_ino, status.st_size, status.st_mtime_ns
