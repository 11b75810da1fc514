"""From the fields, sizes and samples a user selects to the tasks of the pools."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pipeline.core.artifact import Artifact
from pipeline.core.door import may_be_empty, require
from pipeline.core.errors import InputError
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.progress import say
from pipeline.core.settings import configured, read
from pipeline.core.task import Task
from pipeline.corpus.poolconfig import BY_FIELD, SETTINGS, PoolConfig
from pipeline.corpus.pools import nearest, sizes_within
from pipeline.corpus.prefilter import citation_counts
from pipeline.corpus.reader import Corpus
from pipeline.encode import names
from pipeline.stages.pool import pool_task, read_ids


@dataclass(frozen=True)
class Selection:
    """Pools as a user names them: settings by name (:data:`pipeline.corpus.poolconfig.SETTINGS`) that are given."""

    given: Mapping[str, Any]

    @property
    def is_default(self) -> bool:
        """Whether no setting of a citation pool is given."""
        return not {"field", "size", "year", "queries"} & set(self.given)

    def but(self, **settings: Any) -> Selection:
        """Return the selection with other settings."""
        return Selection({**self.given, **settings})

    def pools(self, corpus: Artifact) -> list[Task]:
        """Return the tasks of the selected pools: by field, then size, then sample."""
        exclude: tuple[Path, ...] = self.given.get("exclude", ())
        configs = self.configs(corpus)
        return [pool_task(corpus, config, () if config.given else exclude) for config in configs]

    def configs(self, corpus: Artifact | None) -> list[PoolConfig]:
        """Return the settings of the selected pools; without a corpus, of citation pools.

        A corpus with its own queries is one pool of all its papers, unless settings of a citation pool are given.
        """
        given = dict(self.given)
        contexts = corpus is not None and Corpus(corpus).has_contexts()
        if corpus is not None and Corpus(corpus).has_query_texts() and not contexts and self.is_default:
            common_settings = {name: given[name] for name in ("seed", "drop_identical_id") if name in given}
            ignored = corpus.manifest.config.get("release", {}).get("ignore_identical_ids", False)
            settings = {"drop_identical_id": ignored, **common_settings}
            return [PoolConfig(queries_are="texts", year=None, size="all", queries="all", **settings)]
        fields = given.pop("field", (None,))
        values = {name: setting.default for name, setting in SETTINGS.items() if name != "field"}
        values |= {} if fields == (None,) else BY_FIELD
        values["size"] = (values["size"],)
        adjustable = {"year", "queries", "size"} - set(given)
        if cutoffs := [given[name] for name in ("after_cutoff", "trained_until") if given.get(name) is not None]:
            values["year"] = max(values["year"], max(cutoffs) + 1)
        values |= given
        sizes, samples, exclude = (values.pop(name) for name in ("size", "samples", "exclude"))
        if not 0 < samples < 10_000:
            raise InputError(f"--samples must be from 1 to 9999, got {samples}", "Ask for one or more")
        common = configured(PoolConfig, values)
        if corpus is not None and contexts:
            common = dataclasses.replace(common, queries_are="texts")
            common = self._without_citations(corpus, common)
        changed = {}
        if corpus is not None and adjustable and set(fields) != set(MAG_FIELDS):
            test = dataclasses.replace(common, split="test")
            tests = [dataclasses.replace(test, field=field, size=size) for field in fields for size in sizes]
            tuned = [dataclasses.replace(config, split="validation") for config in tests]  # room for a tuning
            tried = [*([tuned] if "queries" in adjustable else []), tests]
            found = (nearest(Corpus(corpus), configs, adjustable, read_ids(exclude)) for configs in tried)
            changed = next((settings for settings in found if settings is not None), {})
            if "size" in changed:
                changed["size"] = sizes_within(sizes, changed["size"])
            if changed:
                options = " ".join(f"--{name}={SETTINGS[name].typed(value)}" for name, value in changed.items())
                room = " and leaves as many for mdcr tune" * ("queries" in changed)
                say(f"{corpus.manifest.slug} is too small for the defaults: {options}, the nearest that fits{room}")
        samples = 1 if "size" in changed and len(fields) == 1 else samples  # further samples would be equal
        sizes, common = changed.pop("size", sizes), dataclasses.replace(common, **changed)
        return [
            dataclasses.replace(common, field=field, size=size, sample=sample)
            for field in fields
            for size in sizes
            for sample in range(1, 2 if size == "all" else samples + 1)
        ]

    def _without_citations(self, corpus: Artifact, config: PoolConfig) -> PoolConfig:
        """Return settings by which a paper needs no citations, if no paper has any and the user gave no number."""
        if "min_citations" in self.given or citation_counts(Corpus(corpus).attributes, config.prefilter).any():
            return config
        say(f"no paper of {corpus.manifest.slug} has references: --min-citations=0")
        return dataclasses.replace(config, prefilter=dataclasses.replace(config.prefilter, min_citations=0))


def selection(**settings: Any) -> Selection:
    """Return the pools selected by settings; a setting that is None or left out has the protocol's default.

    Texts are parsed as on the command line. There may be several fields or sizes: ``"Art,Biology"``, or a list.

    Raises:
        InputError: a setting or its value is unknown, or of another type.
    """
    return Selection(read(SETTINGS, settings))


def one_name(text: str) -> str:
    """Return the name of one system; InputError for several."""
    if len(names.parse(text)) != 1:
        raise InputError(f"the system must be one, got {text!r}", "Name one")
    return text


Names = str | Sequence[str]
"""One name, several separated by commas, or a list of them."""


def joined(given: Names) -> str:
    """Return names as one text, separated by commas; InputError for other values."""
    require(given, Annotated[Names, may_be_empty], "names")
    return given if isinstance(given, str) else ",".join(given)
