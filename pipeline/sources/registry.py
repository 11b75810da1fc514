"""The sources by name, with their options on the command line.

Reader modules are imported when a release is opened, since the command line imports this module for its help.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.core.config import parse_count
from pipeline.core.errors import InputError, nearest

if TYPE_CHECKING:
    from pipeline.sources.base import Release


class Option(NamedTuple):
    """An option of a source: a parameter of its release; ``fields_from`` is ``--fields-from``.

    ``parse`` converts the text to a value; None: a flag without a value. ``default`` None: the default of the release.
    """

    name: str
    help: str
    parse: Callable[[str], Any] | None = str
    default: Any = None


class Source(NamedTuple):
    """A kind of release.

    ``opener`` is ``package.module:callable``; a leading dot means this package. It takes the folder (if ``has_folder``)
    and the options, and returns a :class:`pipeline.sources.base.Release`. ``markup`` is the default of ``--markup`` for
    new corpora: benchmarks keep it, since published figures are of their texts as they are.
    """

    opener: str
    help: str
    options: tuple[Option, ...] = ()
    has_folder: bool = True
    markup: str = "strip"


_TRUNCATED = Option("allow_truncated", "keep the whole lines of a truncated gzip file", None)

SOURCES: dict[str, Source] = {
    "s2orc2020": Source(
        ".s2orc2020:S2orc2020", "S2ORC 2020-07-05 metadata shards (metadata_*.jsonl.gz)", (_TRUNCATED,)
    ),
    "s2ag": Source(
        ".s2ag:open_s2ag",
        "Semantic Scholar: the datasets papers/, abstracts/, citations/, or answers of the Graph API",
        (_TRUNCATED, Option("fields_from", "s2-fos-model (default), external or any")),
    ),
    "openalex": Source(
        ".openalex:OpenAlex",
        "OpenAlex: a snapshot (data/works/, data/jsonl/works/ or data/parquet/works/), or works of the API",
        (
            _TRUNCATED,
            Option("fields_from", "auto (default), concepts or topics"),
            Option("min_concept_score", "score a level-0 concept needs (default: 0.3)", float),
            Option("include_xpac", "keep the works that OpenAlex's own interface leaves out", None),
        ),
    ),
    "beir": Source(
        ".beir:Beir",
        "a BEIR or TREC folder: corpus, queries, qrels",
        (Option("judged", "split of the qrels (default: test)"),),
        markup="keep",
    ),
    "mteb": Source(
        ".mteb:Mteb",
        "tasks of MTEB that retrieve or rerank: a folder for each, as mdcr fetch mteb writes them",
        (
            Option("task", "name of the task; several with commas, or the list scientific: a corpus for each"),
            Option("judged", "split (default: the first that is evaluated)"),
            Option("subset", "language, or another part, where a task has several"),
        ),
        markup="keep",
    ),
    "csfcube": Source(".csfcube:Csfcube", "CSFCube, or pools judged by facet in its layout", markup="keep"),
    "jsonl": Source(".collection:JsonLines", "your own JSON lines, with --columns", (_TRUNCATED,)),
    "parquet": Source(".collection:ParquetFiles", "your own Parquet files, with --columns"),
    "csv": Source(".collection:Tables", "your own CSV or TSV with a header, with --columns", (_TRUNCATED,)),
    "bibtex": Source(".collection:Bibtex", "your own BibTeX; the key of an entry is its id", (_TRUNCATED,)),
    "synthetic": Source(
        ".synthetic:Synthetic",
        "a generated corpus of any size; needs no input",
        (
            Option("papers", "how many papers (default: 30k)", lambda text: parse_count(text, "--papers"), 30_000),
            Option("seed", "seed (default: 13)", int),
        ),
        has_folder=False,
        markup="keep",
    ),
}

COMMON = (
    Option("allow_empty", "accept files without data, and a release of which no paper is kept", None),
    Option("allow_dropped", "accept a release of which most records cannot be read", None),
    Option(
        "max_text", "characters of a text that are kept (default: 1M)", lambda text: parse_count(text, "--max-text")
    ),
    Option("markup", "strip tags, entities and LaTeX commands from texts (default, but of benchmarks), or keep them"),
    Option("columns", "your names, as in paper_id=id,title=headline,references=refs,cited=target"),
    Option("citations", "FILE of citations beside the papers: two columns of ids, the citing paper first"),
    Option("contexts", "FILE of citation contexts, which become the queries: ours, or of S2AG, S2ORC, unarXive"),
)
"""Options of every source."""


def register(name: str, source: Source) -> None:
    """Add a source of another package, for ``mdcr corpus --source NAME``; InputError if the name is taken."""
    if SOURCES.setdefault(name, source) != source:
        raise InputError(f"there is a source {name!r} already", "Give yours another name")


def all_options() -> dict[str, list[tuple[str, Option]]]:
    """Return (source, option) pairs of all sources by option name."""
    options: dict[str, list[tuple[str, Option]]] = {}
    for name, source in SOURCES.items():
        for option in (*source.options, *COMMON):
            options.setdefault(option.name, []).append((name, option))
    return options


def open_release(source: str, folder: Path | None, typed: Mapping[str, Any]) -> Release:
    """Return the release of a source.

    ``typed`` are the options by name, as users type them: text, True for a flag, None if not given. InputError if the
    source is unknown or its folder is missing, or if an option is unknown or has a bad value.
    """
    if source not in SOURCES:
        raise InputError(f"there is no source {source!r}", nearest(source, SOURCES))
    kind = SOURCES[source]
    if kind.has_folder and folder is None:
        raise InputError(f"source {source} must have the folder of the release", "Give it with --input")
    options = {option.name: option for option in (*kind.options, *COMMON)}
    values = {name: option.default for name, option in options.items() if option.default is not None}
    for name, text in typed.items():
        if text is None or text is False:
            continue
        if name not in options:
            raise InputError(f"source {source} has no option {_flag(name)}", nearest(_flag(name), map(_flag, options)))
        parse = options[name].parse
        if parse and text is True:
            raise InputError(f"{_flag(name)} must have a value, got True", options[name].help)
        try:
            values[name] = parse(text) if parse else text
        except ValueError as error:
            raise InputError(f"{_flag(name)} {text!r} is not valid ({error})", options[name].help) from error
    module, _, opener = kind.opener.partition(":")
    release = getattr(importlib.import_module(module, __package__), opener)
    instance: Release = release(folder, **values) if kind.has_folder else release(**values)
    return instance


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
