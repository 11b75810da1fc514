"""A small release, and what a workspace holds."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pipeline.core.artifact import NUMBER
from tests.builders import made_up_paper
from tests.releases import s2orc_record, write_s2orc

PAPERS = 600
DATES = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d")
"""When the pages were written, as the index of reports says."""
TEMPORARY = (".partial", ".lock", ".tmp", ".old", ".done")


def release(folder: Path, papers: int = PAPERS) -> Path:
    """Write a small S2ORC release in which every paper has a text and cites others."""
    records = []
    for number in range(papers):
        texts = {name: made_up_paper(number)[name] for name in ("title", "abstract")}
        fields = ["Medicine"] if number % 3 else ["Physics", "Biology"]
        cited = [str((number * 7 + step) % papers) for step in range(1, 5)]
        citing = {"outbound_citations": cited, "has_outbound_citations": True}
        records.append(s2orc_record(str(number), year=2018 + number % 2, mag_field_of_study=fields, **texts, **citing))
    return write_s2orc(folder, records, parts=3)


def contents(root: Path) -> dict[str, object]:
    """Return the content of every file of a workspace, by path, without what depends on the run.

    Of the leaderboard, which shows measured times, only the names of files count.
    """
    files: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path != root / NUMBER:
            name = path.relative_to(root).as_posix()
            data = b"" if "runs/reports/leaderboard/" in name else DATES.sub(b"", path.read_bytes())
            files[name] = stable(path) if path.name == "manifest.json" else data
    return files


def stable(manifest: Path) -> dict[str, object]:
    """Return a manifest without provenance and the checksum that covers it."""
    values: dict[str, object] = json.loads(manifest.read_text())
    named = ("id", "stage", "stage_version", "slug", "config", "inputs", "outputs", "counts", "schema")
    return {name: values[name] for name in named}


def leftovers(root: Path) -> list[Path]:
    """Return unfinished folders, locks and temporary files."""
    return [path for path in root.rglob("*") if path.name.endswith(TEMPORARY) or path.name.startswith(".")]


def shards(root: Path) -> dict[str, int]:
    """Return the inode of every finished shard of papers and vectors, published or not: one made again has another."""
    inodes: dict[str, int] = {}
    for pattern in ("corpora/*/papers-*.arrow", "indexes/vectors/*/*/vectors-*.arrow"):
        for path in root.glob(pattern):
            unfinished = path.parent.name.endswith(".partial") and not (path.parent / "manifest.json").is_file()
            if not unfinished or (path.parent / f".{path.name}.done").is_file():
                inodes[path.name] = path.stat().st_ino
    return inodes
