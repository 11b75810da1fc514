"""The sources by name, with their options on the command line.

Reader modules are imported when a release is opened, since the command line imports this module for its help.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.core.errors import InputError, require_known
from pipeline.core.settings import Setting, read, settings_of
from pipeline.sources.options import Beir, Mteb, OpenAlex, Options, S2ag, Synthetic

if TYPE_CHECKING:
    from pipeline.sources.base import Release


class Source(NamedTuple):
    """A kind of release.

    ``opener`` is ``package.module:callable``; a leading dot means this package. It takes the folder (if ``has_folder``)
    and the options, and returns a :class:`pipeline.sources.base.Release`. ``options`` is a frozen dataclass that
    declares them, a subclass of :class:`Options`. ``markup`` is the default of ``--markup`` for new corpora: benchmarks
    keep it, since published figures are of their texts as they are.
    """

    opener: str
    help: str
    options: type[Options] = Options
    has_folder: bool = True
    markup: str = "strip"


SOURCES: dict[str, Source] = {
    "s2orc2020": Source(".s2orc2020:S2orc2020", "S2ORC 2020-07-05 metadata shards (metadata_*.jsonl.gz)"),
    "s2ag": Source(".s2ag:S2ag", "Semantic Scholar: the datasets papers/, abstracts/ and citations/", S2ag),
    "openalex": Source(
        ".openalex:OpenAlex",
        "OpenAlex: a snapshot (data/works/, data/jsonl/works/ or data/parquet/works/), or works of the API",
        OpenAlex,
    ),
    "beir": Source(".beir:Beir", "a BEIR or TREC folder: corpus, queries, qrels", Beir, markup="keep"),
    "mteb": Source(
        ".mteb:Mteb",
        "tasks of MTEB that retrieve or rerank: a folder TASK for each, of hf download",
        Mteb,
        markup="keep",
    ),
    "csfcube": Source(".csfcube:Csfcube", "CSFCube, or pools judged by facet in its layout", markup="keep"),
    "jsonl": Source(".collection:JsonLines", "your JSON lines, with --columns"),
    "parquet": Source(".collection:ParquetFiles", "your Parquet files, with --columns"),
    "csv": Source(".collection:Tables", "your CSV or TSV with a header, with --columns"),
    "bibtex": Source(".collection:Bibtex", "your BibTeX; the key of an entry is its id"),
    "arxiv": Source(".collection:Arxiv", "arXiv's dump: arxiv-metadata-oai-snapshot.json, no references"),
    "synthetic": Source(
        ".synthetic:Synthetic",
        "a generated corpus of any size; needs no input",
        Synthetic,
        has_folder=False,
        markup="keep",
    ),
}


def register(name: str, source: Source) -> None:
    """Add a source of another package, for ``mdcr corpus --source NAME``; InputError if the name is taken."""
    if SOURCES.setdefault(name, source) != source:
        raise InputError(f"there is a source {name!r} already", "Give yours another name")


def all_options() -> dict[str, Setting]:
    """Return the options of all sources by name; the help of one that not all have names those that do."""
    uses: dict[str, dict[str, tuple[list[str], Setting]]] = {}
    for name, source in SOURCES.items():
        for option, declared in settings_of(source.options).items():
            uses.setdefault(option, {}).setdefault(declared.help, ([], declared))[0].append(name)
    options = {}
    for option, by_help in uses.items():
        texts = [
            text if len(names) == len(SOURCES) else f"{', '.join(names)}: {text}"
            for text, (names, _) in by_help.items()
        ]
        options[option] = replace(next(iter(by_help.values()))[1], help="; ".join(texts), default=None)
    return options


def open_release(source: str, folder: Path | None, typed: Mapping[str, Any]) -> Release:
    """Return the release of a source.

    ``typed`` are the options by name, as users type them or Python values, None if not given. InputError if the source
    is unknown or its folder is missing, or if an option is unknown or has a bad value.
    """
    require_known(source, SOURCES, f"there is no source {source!r}")
    kind = SOURCES[source]
    if kind.has_folder and folder is None:
        raise InputError(f"source {source} must have the folder of the release", "Give it with --input")
    options = settings_of(kind.options)
    given = {name: value for name, value in typed.items() if value not in (None, False)}
    known = [f"--{option.option}" for option in options.values()]
    for option in (f"--{name.replace('_', '-')}" for name in given):
        require_known(option, known, f"source {source} has no option {option}")
    values = read(options, given)
    module, _, opener = kind.opener.partition(":")
    release = getattr(importlib.import_module(module, __package__), opener)
    instance: Release = release(folder, **values) if kind.has_folder else release(**values)
    return instance
