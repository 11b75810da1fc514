"""Options of the sources: fields of their releases, with their help on the command line."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.settings import Positive, setting

MAX_TEXT = 1_000_000
"""Maximum number of characters of a title, an abstract or a query in the release; longer texts are cut."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every source."""

    allow_dropped: bool = setting(False, "accept a release of which most records cannot be read")
    max_text: Positive = setting(MAX_TEXT, "characters of a text that are kept (default: 1M)")
    markup: str = setting(
        "keep", "strip tags, entities and LaTeX commands from texts (default, but of benchmarks), or keep them"
    )
    columns: str | None = setting(None, "your names, as in paper_id=id,title=headline,references=refs,cited=target")
    citations: str | None = setting(
        None, "FILE of citations stored apart from the papers: two columns of ids, the citing paper first"
    )
    contexts: str | None = setting(None, "FILE of citation contexts, which become the queries: ours, or of S2AG")


@dataclass(frozen=True, kw_only=True)
class S2ag(Options):
    """Options of Semantic Scholar; the sources of fields are :data:`pipeline.sources.fieldmaps.S2_SOURCES`."""

    fields_from: str = setting("s2-fos-model", "s2-fos-model (default), external or any")


@dataclass(frozen=True, kw_only=True)
class OpenAlex(Options):
    """Options of OpenAlex."""

    include_xpac: bool = setting(False, "keep the works that OpenAlex's interface leaves out")


@dataclass(frozen=True, kw_only=True)
class Beir(Options):
    """Options of BEIR folders."""

    judged: str = setting("test", "split of the qrels (default: test)")


@dataclass(frozen=True, kw_only=True)
class Mteb(Options):
    """Options of tasks of MTEB."""

    task: str = setting("", "name of the task; several with commas: a corpus for each")
    judged: str = setting("", "split (default: the first that is evaluated)")
    subset: str = setting("", "language, or another part, where a task has several")


@dataclass(frozen=True)
class Synthetic(Options):
    """Options of generated corpora."""

    papers: Positive = setting(30_000, "how many papers (default: 30k)")
    seed: int = setting(13, "seed (default: 13)")
