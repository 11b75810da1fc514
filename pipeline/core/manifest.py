"""The manifest of an artifact. It is written last: a folder without a manifest is unfinished."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.core import files
from pipeline.core.config import canonical, digest
from pipeline.core.errors import CorruptError, InputError

MANIFEST = "manifest.json"
SCHEMA = 1

Counts = Mapping[str, Any]
"""Counts of a stage: numbers by name, nested if they are counted by reason."""


@dataclass(frozen=True)
class Output:
    """One file of an artifact; ``path`` is relative to its folder, ``rows`` None unless it is a table."""

    path: str
    rows: int | None
    bytes: int
    sha256: str
    counts: Counts = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """The record of one artifact; on disk it also has its own SHA-256 as ``checksum``.

    ``id`` is the hash of stage, version, config and inputs (identities by name); ``provenance`` has code version,
    package versions, device, wall time, and what :attr:`order` reads.
    """

    id: str
    stage: str
    stage_version: int
    slug: str
    config: Mapping[str, Any]
    inputs: Mapping[str, str]
    outputs: tuple[Output, ...]
    counts: Counts
    provenance: Mapping[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def order(self) -> tuple[int, str, str]:
        """Key by which artifacts of a workspace sort, oldest first: their number, when they were finished, their name.

        Artifacts of versions without numbers are the oldest.
        """
        return int(self.provenance.get("number", 0)), str(self.provenance.get("finished", "")), f"{self.slug}-{self.id}"

    def write(self, folder: Path) -> None:
        """Write ``manifest.json`` into ``folder``, atomically."""
        files.write_text(folder / MANIFEST, _text(canonical(dataclasses.asdict(self))))

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read a manifest; raise CorruptError if it is damaged, InputError if it has another schema."""
        path = folder / MANIFEST
        try:
            manifest = _parsed(path.read_bytes())
            if manifest.schema != SCHEMA:
                raise InputError(
                    f"{path} has schema {manifest.schema}, this version reads {SCHEMA}",
                    "Remove its folder, and run the command that makes it",
                )
            return manifest
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptError(
                f"{path} is damaged ({type(error).__name__}: {error})",
                "Run the command that makes it with --repair, or remove its folder and run it again",
            ) from error


@functools.lru_cache(maxsize=10_000)
def _parsed(content: bytes) -> Manifest:
    """Return the manifest of a file; a command opens the same ones often."""
    values = json.loads(text := content.decode())
    del values["checksum"]
    if text != _text(values):
        raise ValueError("its checksum does not match")
    outputs = tuple(Output(**output) for output in values.pop("outputs"))
    return Manifest(outputs=outputs, **values)


def _text(values: Mapping[str, Any]) -> str:
    """Return the text of a manifest, with the checksum of all other fields at the end."""
    return json.dumps({**values, "checksum": digest(values)}, indent=1, ensure_ascii=False) + "\n"
