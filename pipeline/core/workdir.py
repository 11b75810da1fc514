"""Work folder of a stage. Files are finished one by one, so a killed stage continues where it stopped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import matches
from pipeline.core.config import digest
from pipeline.core.errors import CorruptError
from pipeline.core.manifest import Manifest, Output

_DONE = ".done"
_SCRATCH = "scratch"
_PLAN = "scratch/units.json"


@dataclass
class Written:
    """Record of a file by its writer."""

    rows: int | None = None
    counts: dict[str, Any] = field(default_factory=dict)


class Workdir:
    """An artifact under construction.

    A finished file has a record beside it (``.NAME.done``: rows, bytes, SHA-256 and counts). Opening the folder of a
    killed run removes files that have no record or differ from it. Several processes, also on several machines, may
    finish different files of a folder. Listings of a shared folder can lag behind, so files with known names (from a
    plan or an earlier call) are looked up by name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: dict[str, Any] = {}
        self._known: set[str] = set()

    @classmethod
    def prepare(cls, path: Path) -> Workdir:
        """Open or create the folder, keeping finished files of an earlier run."""
        path.mkdir(parents=True, exist_ok=True)
        work = cls(path)
        for record in work._records():
            outputs = _outputs(record)
            if outputs is None or not all(matches(path, output) for output in outputs):
                record.unlink()
        for child in path.iterdir():
            if child.is_dir() and child.name != _SCRATCH and not work.done(child.name):
                shutil.rmtree(child)
            elif child.is_file() and not child.name.endswith(_DONE) and not work.done(child.name):
                child.unlink()
        return work

    def note(self, **facts: Any) -> None:
        """Add to the manifest's provenance."""
        self.notes.update(facts)

    def done(self, name: str) -> bool:
        """Return whether the file or folder ``name`` is finished; ``scratch/NAME`` is an intermediate file."""
        if name.startswith(f"{_SCRATCH}/"):
            return (self.path / name).is_file()
        done = _outputs(self._record(name)) is not None
        if done:
            self._known.add(name)
        return done

    def counts(self, name: str) -> dict[str, Any]:
        """Return the counts recorded with a finished file."""
        outputs = _outputs(self._record(name))
        if outputs is None:
            raise CorruptError(f"{self._record(name)} is missing or damaged", "Run the same command again")
        return dict(outputs[0].counts)

    @contextmanager
    def file(self, name: str) -> Iterator[tuple[Path, Written]]:
        """Yield a path to write ``name`` to and a :class:`Written` to fill in; finish the file after the block."""
        record = Written()
        with files.disk_errors(self.path):
            with files.replacing(self.path / name) as temporary:
                yield temporary, record
                size, digest = temporary.stat().st_size, files.sha256(temporary)
                output = Output(name, record.rows, size, digest, record.counts)
            self._finish(name, [output])

    @contextmanager
    def folder(self, name: str) -> Iterator[tuple[Path, Written]]:
        """Yield an empty folder, such as for an index, and a :class:`Written`; finish the folder after the block."""
        record = Written()
        folder = self.path / name
        shutil.rmtree(folder, ignore_errors=True)
        with files.disk_errors(self.path):
            folder.mkdir(parents=True)
            yield folder, record
        self.finish_folder(name, record.counts)

    def finish_folder(self, name: str, counts: Mapping[str, Any] | None = None) -> None:
        """Finish a folder that a library has written, such as a checkpoint."""
        outputs = []
        with files.disk_errors(self.path):
            for path in sorted(path for path in (self.path / name).rglob("*") if path.is_file()):
                files.sync(path)
                relative = path.relative_to(self.path).as_posix()
                outputs.append(Output(relative, None, path.stat().st_size, files.sha256(path)))
            outputs[0] = replace(outputs[0], counts=dict(counts or {}))
            self._finish(name, outputs)

    def arrow(self, name: str, data: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema, **counts: Any) -> int:
        """Write an Arrow file, a table as a single batch, and return its rows."""
        if isinstance(data, pa.Table):
            data = data.cast(schema).combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=schema)]
        with self.file(name) as (path, record):
            record.rows = files.write_arrow(path, data, schema)
            record.counts = counts
        return record.rows

    def scratch(self) -> Path:
        """Return a folder for intermediate files, kept after a kill and removed at publishing."""
        folder = self.path / _SCRATCH
        folder.mkdir(exist_ok=True)
        return folder

    def outputs(self) -> list[Output]:
        """Return the finished outputs, sorted by path."""
        outputs = [output for record in self._records() for output in _outputs(record) or ()]
        return sorted(outputs, key=lambda output: output.path)

    def clear_records(self) -> None:
        """Remove records, intermediate files, and what lost processes were writing, which leaves the artifact."""
        records = self._records()
        shutil.rmtree(self.path / _SCRATCH, ignore_errors=True)
        for left in (*records, *self.path.glob(".*.tmp")):
            left.unlink(missing_ok=True)

    def adopt(self, outputs: Sequence[Output]) -> None:
        """Write records of outputs, which :meth:`prepare` checks."""
        for name in {output.path.split("/")[0] for output in outputs}:
            self._finish(name, [output for output in outputs if output.path.split("/")[0] == name])

    def write_plan(self, units: Mapping[str, int]) -> None:
        """Write the planned units of the folder with their sizes."""
        self.scratch()
        files.write_text(self.path / _PLAN, json.dumps(dict(units)))

    def plan(self) -> dict[str, int] | None:
        """Return the planned units; None if there is no readable plan."""
        plan = files.read_json(self.path / _PLAN)
        return plan if isinstance(plan, dict) else None

    def publish(self, manifest: Manifest, path: Path) -> None:
        """Write the manifest and move the folder to its final name; it replaces a folder without a manifest."""
        manifest.write(self.path)
        if path.exists():
            shutil.rmtree(path)
        self.path = self.path.rename(path)
        files.sync(path.parent)
        self.clear_records()

    def _records(self) -> list[Path]:
        """Return all records: listed ones, and those of files with known names."""
        known = {name for name in {*(self.plan() or {}), *self._known} if "/" not in name and self.done(name)}
        return sorted({*map(self._record, known), *self.path.glob(f".*{_DONE}")})

    def _record(self, name: str) -> Path:
        return self.path / f".{name}{_DONE}"

    def _finish(self, name: str, outputs: list[Output]) -> None:
        self._known.add(name)
        values = [asdict(output) for output in outputs]
        files.write_text(self._record(name), json.dumps({"outputs": values, "checksum": digest(values)}))


def _outputs(record: Path) -> list[Output] | None:
    """Return the outputs of a record; None if it is missing, empty or damaged, so the file is not finished."""
    noted = files.read_json(record)
    if not isinstance(noted, dict) or not noted.get("outputs") or digest(noted["outputs"]) != noted.get("checksum"):
        return None
    return [Output(**output) for output in noted["outputs"]]
