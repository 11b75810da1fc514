"""The gold standard of reviewer assignment (Stelmakh et al. 2023), read as a task of reviewer matching.

Queries are the reviewers and candidates the papers each of them rated, since hardly a paper has two ratings. Expertise
from 1 to 5 becomes a grade from 0 to 3, rounded half up.
"""

from __future__ import annotations

import csv
import functools
import io
import math
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pipeline.core.errors import CorruptError
from pipeline.studies.scirepeval.papers import Doc

_RATED = 10
_FIELDS = ("title", "abstract")


def docs(path: Path) -> Iterator[Doc]:
    """Yield every paper."""
    for name, content in _files(path).items():
        if "/papers/" in name:
            paper = msgspec.json.decode(content)
            yield Doc(Path(name).stem, *(paper.get(field) or "" for field in _FIELDS))


def reviewers(path: Path) -> dict[str, list[str]]:
    """Return the papers of each reviewer."""
    found = {Path(name).stem: content for name, content in _files(path).items() if "/participants/" in name}
    return {
        name: [each["paperId"] for each in msgspec.json.decode(content)["papers"]] for name, content in found.items()
    }


def judgements(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield (reviewer, paper, grade) of each rating."""
    table = next(content for name, content in _files(path).items() if name.endswith("/evaluations.csv"))
    for row in csv.DictReader(io.StringIO(table.decode()), delimiter="\t"):
        for number in range(1, _RATED + 1):
            if row[f"Paper{number}"]:
                yield row["ParticipantID"], row[f"Paper{number}"], _grade(row, number)


def _grade(row: Mapping[str, Any], number: int) -> int:
    return math.floor((float(row[f"Expertise{number}"]) - 1) * 3 / 4 + 0.5)


@functools.lru_cache(maxsize=1)
def _files(path: Path) -> dict[str, bytes]:
    """Return the files of the archive, or of the folder it was unpacked to, by name."""
    if path.is_dir():
        return {f"/{each.relative_to(path)}": each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}
    try:
        with tarfile.open(path) as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            return {f"/{member.name}": handle.read() for member in members if (handle := archive.extractfile(member))}
    except (tarfile.TarError, OSError, EOFError) as error:
        raise CorruptError(f"{path} cannot be read as an archive ({error})", "Fetch it again") from error
