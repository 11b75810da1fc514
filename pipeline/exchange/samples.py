"""Values of single samples in logs of lm-evaluation-harness and Inspect."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from pipeline.core import files
from pipeline.core.errors import InputError

LIMIT = 2**30
"""Maximum bytes of a file, unpacked."""

_ZSTANDARD, _NAME_LENGTHS = 93, 26
"""Method of Zstandard in ZIP archives, and the offset of two lengths in the header of a member."""

MAIN = "main"
"""Name of the metric that a tool calls the main one, or names first."""

JUDGED = "judged-"
"""Begins the names of metrics that were estimated from a part of the judgements: values of items may exceed 1."""

_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Values of Inspect's letters: correct, incorrect, partially correct, no answer."""

Row = tuple[str, str, str, str | None, str, str, float]
"""A row of :data:`pipeline.exchange.boards.VALUES`."""


def check_size(path: Path, size: int) -> None:
    """Raise InputError if a file holds more than :data:`LIMIT`."""
    if size > LIMIT:
        raise InputError(f"{path} must hold at most {LIMIT // 2**20:,} MiB, got more", "Divide it")


def of_samples(path: Path, records: Sequence[Any]) -> Iterator[Row]:
    """Yield the samples of a task of lm-evaluation-harness; a metric of a filter is named ``metric,filter``."""
    task = re.sub(r"^samples_|_\d{4}-\d\d-\d\dT.*$", "", path.name.partition(".jsonl")[0])
    for record in records:
        end = "" if record.get("filter", "none") == "none" else f",{record['filter']}"
        numbers = {
            f"{name}{end}": record[name] for name in record["metrics"] if isinstance(record.get(name), int | float)
        }
        if numbers and record.get("filter") == records[0].get("filter"):
            numbers = {MAIN: next(iter(numbers.values()))} | numbers
        for metric, value in numbers.items():
            yield path.parent.name.replace("__", "/"), task, str(record["doc_id"]), None, "", metric, float(value)


def inspect_archive(path: Path) -> Iterator[Any]:
    """Yield the header of a log of Inspect, then its samples."""
    size = 0
    with zipfile.ZipFile(path) as archive, path.open("rb") as handle:
        names = archive.namelist()
        for name in ["header.json", *sorted(name for name in names if name.startswith("samples/"))]:
            data = _member(archive, handle, name, LIMIT - size + 1)
            size += len(data)
            check_size(path, size)
            yield json.loads(data)["eval"] if name == "header.json" else json.loads(data)


def _member(archive: zipfile.ZipFile, handle: BinaryIO, name: str, most: int) -> bytes:
    """Return at most so many bytes of a member, also of Zstandard, which Inspect writes and zipfile cannot read."""
    info = archive.getinfo(name)
    if info.compress_type != _ZSTANDARD:
        with files.open_member(archive, name) as member:
            return member.read(most)
    handle.seek(info.header_offset + _NAME_LENGTHS)
    handle.seek(sum(struct.unpack("<HH", handle.read(4))), io.SEEK_CUR)
    with pa.CompressedInputStream(pa.BufferReader(handle.read(info.compress_size)), "zstd") as stream:
        return bytes(stream.read(most))


def of_inspect(log: Iterable[Any]) -> Iterator[Row]:
    """Yield the samples of a log of Inspect, its header first."""
    header, *samples = log
    model, task = str(header["model"]), str(header["task"])
    for sample in samples:
        numbers = dict[str, float]()
        for scorer, score in (sample.get("scores") or {}).items():
            value = score["value"]
            for name, member in value.items() if isinstance(value, dict) else [(scorer, value)]:
                number = _GRADES.get(member) if isinstance(member, str) else member
                if isinstance(number, int | float):
                    numbers[name] = float(number)
        for metric, number in ({MAIN: next(iter(numbers.values()))} | numbers if numbers else {}).items():
            yield model, task, str(sample["id"]), None, str(sample.get("epoch", 1)), metric, number
