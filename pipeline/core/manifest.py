"""The manifest of an artifact. It is written last: a folder without a manifest is unfinished."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.core import files
from pipeline.core.config import canonical
from pipeline.core.errors import CorruptError, InputError

MANIFEST = "manifest.json"
SCHEMA = 1

Counts = Mapping[str, Any]
"""What a stage counted: numbers by name, nested where a thing is counted by reason."""


@dataclass(frozen=True)
class Output:
    """One file of an artifact.

    ``path`` is below the artifact's folder, ``rows`` None unless it is a table, ``sha256`` 64 hex digits.
    """

    path: str
    rows: int | None
    bytes: int
    sha256: str
    counts: Counts = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """The record of one artifact.

    Attributes:
        id: its identity, a hash of stage, stage_version, config and inputs.
        inputs: identity of each input by name.
        provenance: code version, package versions, device, wall time.
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

    def write(self, folder: Path) -> None:
        """Write ``manifest.json`` into ``folder``, atomically."""
        text = json.dumps(canonical(dataclasses.asdict(self)), indent=1, ensure_ascii=False)
        files.write_text(folder / MANIFEST, text + "\n")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of an artifact.

        Raises:
            CorruptError: it cannot be parsed, or is of another schema.
        """
        path = folder / MANIFEST
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values["schema"] != SCHEMA:
                raise InputError(
                    f"{path} has schema {values['schema']}, this version reads {SCHEMA}", "Build the artifact anew"
                )
            outputs = tuple(Output(**output) for output in values.pop("outputs"))
            return cls(outputs=outputs, **values)
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise CorruptError(f"{path} is damaged ({error!r})", "Remove its folder and run the stage again") from error
