"""The sources there are, by the names users type."""

from __future__ import annotations

from pathlib import Path

from pipeline.core.errors import InputError, nearest
from pipeline.sources.base import Release
from pipeline.sources.beir import Beir
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.sources.synthetic import Synthetic

SOURCES = {
    "s2orc2020": "S2ORC 2020-07-05 metadata shards (metadata_*.jsonl.gz)",
    "beir": "a BEIR folder: corpus.jsonl, queries.jsonl, qrels/",
    "synthetic": "a generated corpus of any size; needs no input",
}


def open_release(
    source: str,
    folder: Path | None,
    *,
    allow_truncated: bool = False,
    split: str = "test",
    papers: int = 30_000,
    seed: int = 13,
) -> Release:
    """Return the release of a source.

    Args:
        source: one of :data:`SOURCES`.
        folder: where it lies on disk; the synthetic source has none.
        allow_truncated: keep the whole lines of a gzip file that breaks off.
        split: which judgements of a BEIR folder.
        papers: size of the synthetic corpus.
        seed: seed of the synthetic corpus.

    Raises:
        InputError: the source is unknown, or needs a folder and got none.
    """
    if source == "synthetic":
        return Synthetic(papers=papers, seed=seed)
    if source not in SOURCES:
        raise InputError(f"there is no source {source!r}", nearest(source, SOURCES))
    if folder is None:
        raise InputError(f"source {source} needs the folder of the release", "Give it with --input")
    if source == "beir":
        return Beir(folder, split)
    return S2orc2020(folder, allow_truncated)
