"""A published artifact on disk, and the check that its files are what its manifest says."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipeline.core import files
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.manifest import MANIFEST, Manifest, Output

_verified: dict[str, tuple[int, int, int]] = {}
"""Files this process has checked, with the stamp they had: checking again would cost a read and tell nothing."""


@dataclass(frozen=True)
class Artifact:
    """A folder with a manifest."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path) -> Artifact:
        """Open the artifact in ``path``.

        Raises:
            InputError: there is none.
        """
        if not (path / MANIFEST).is_file():
            raise InputError(f"{path} holds no artifact (no {MANIFEST})", "Run the stage that makes it")
        return cls(path, Manifest.read(path))

    @property
    def id(self) -> str:
        """Identity, 64 hex digits."""
        return self.manifest.id

    @property
    def name(self) -> str:
        """Folder name: slug and short identity."""
        return self.path.name

    def outputs(self, pattern: str = "*") -> list[Output]:
        """Return the outputs whose path matches ``pattern``, in order of path."""
        return sorted((o for o in self.manifest.outputs if Path(o.path).match(pattern)), key=lambda o: o.path)

    def file(self, name: str) -> Path:
        """Return the path of one output after checking its size and SHA-256 (once a process).

        Raises:
            CorruptError: it is missing or differs.
        """
        for output in self.manifest.outputs:
            if output.path == name:
                self._verify(output)
                return self.path / name
        raise CorruptError(f"{self.path} has no file {name}", "Run the stage again with --repair")

    def arrow(self, name: str) -> pa.Table:
        """Open one Arrow output, verified, by memory map."""
        return files.read_arrow(self.file(name))

    def verify(self) -> None:
        """Check every output.

        Raises:
            CorruptError: one is missing or differs; it is named.
        """
        for output in self.manifest.outputs:
            self._verify(output)

    def damaged(self) -> list[str]:
        """Return the paths of all outputs that are missing or differ from the manifest."""
        return [o.path for o in self.manifest.outputs if not matches(self.path, o)]

    def complete(self) -> bool:
        """Whether every output is there with its recorded size; contents are checked when a stage reads them."""
        return all(_size(self.path / o.path) == o.bytes for o in self.manifest.outputs)

    def _verify(self, output: Output) -> None:
        path = self.path / output.path
        stamp = _stamp(path)
        if stamp is not None and _verified.get(str(path)) == stamp:
            return
        if not matches(self.path, output):
            state = "is missing" if stamp is None else "does not match its recorded checksum"
            raise CorruptError(
                f"{path} {state} ({self.manifest.stage} {self.name})",
                "Run the same command with --repair to rebuild it alone",
            )
        if stamp is not None:
            _verified[str(path)] = stamp


def matches(folder: Path, output: Output) -> bool:
    """Whether an output is on disk with its recorded size and checksum."""
    path = folder / output.path
    return _size(path) == output.bytes and files.sha256(path) == output.sha256


def published(room: Path) -> Iterable[Artifact]:
    """Yield the artifacts below ``room``, in order of name."""
    if not room.is_dir():
        return
    for folder in sorted(room.iterdir()):
        if not folder.name.startswith(".") and (folder / MANIFEST).is_file():
            yield Artifact.open(folder)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
