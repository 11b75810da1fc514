"""The sources there are, by the names users type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.errors import InputError, nearest
from pipeline.sources.base import Release
from pipeline.sources.beir import Beir
from pipeline.sources.columns import Collection, parse_columns
from pipeline.sources.openalex import OpenAlex
from pipeline.sources.s2ag import S2ag
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.sources.synthetic import Synthetic
from pipeline.sources.tables import JoinedRelease

SOURCES: Mapping[str, str] = {
    "s2orc2020": "S2ORC 2020-07-05 metadata shards (metadata_*.jsonl.gz)",
    "s2ag": "Semantic Scholar Academic Graph datasets: papers/, abstracts/, citations/",
    "openalex": "an OpenAlex snapshot: data/works/, data/jsonl/works/ or data/parquet/works/",
    "beir": "a BEIR or TREC folder: corpus, queries, qrels",
    "jsonl": "your own JSON lines, with --columns",
    "parquet": "your own Parquet files, with --columns",
    "synthetic": "a generated corpus of any size; needs no input",
}


@dataclass(frozen=True)
class SourceOptions:
    """What a user can say of a source; each source looks at its own.

    Attributes:
        allow_truncated: keep the whole lines of a gzip file that breaks off.
        judged: beir: which judgements.
        columns: jsonl, parquet: the map from our columns to the collection's.
        fields_from: s2ag, openalex: whose fields of study count; None: the source's default.
        min_concept_score: openalex: score from which a level-0 concept counts.
        include_xpac: openalex: keep the works its own interface leaves out.
        papers: synthetic: how many.
        seed: synthetic: seed.
    """

    allow_truncated: bool = False
    judged: str = "test"
    columns: str | None = None
    fields_from: str | None = None
    min_concept_score: float = 0.3
    include_xpac: bool = False
    papers: int = 30_000
    seed: int = 13


def open_release(source: str, folder: Path | None, options: SourceOptions) -> Release | JoinedRelease:
    """Return the release of a source.

    Args:
        source: one of :data:`SOURCES`.
        folder: where it lies on disk; the synthetic source has none.
        options: the source's settings.

    Raises:
        InputError: the source is unknown, needs a folder and got none, or a setting is none of its own.
    """
    if source == "synthetic":
        return Synthetic(papers=options.papers, seed=options.seed)
    if source not in SOURCES:
        raise InputError(f"there is no source {source!r}", nearest(source, SOURCES))
    if folder is None:
        raise InputError(f"source {source} needs the folder of the release", "Give it with --input")
    partial = options.allow_truncated
    if source == "s2ag":
        return S2ag(folder, options.fields_from or "s2-fos-model", partial)
    if source == "openalex":
        fields_from = options.fields_from or "auto"
        return OpenAlex(folder, fields_from, options.min_concept_score, options.include_xpac, partial)
    if source == "beir":
        return Beir(folder, options.judged)
    if source == "s2orc2020":
        return S2orc2020(folder, partial)
    return Collection(folder, source, parse_columns(options.columns), partial)
