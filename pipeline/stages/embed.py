"""Stage ``embed``: encode the papers of a pool that the vector store of their corpus and encoder lacks.

Stage ``fit`` runs before it and fits encoders that learn from the corpus.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.artifact import Artifact, published
from pipeline.core.config import SHORT_ID, canonical, digest
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Sharded, Task, UnitProvenance
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import FITS, VECTORS, find_corpus
from pipeline.corpus.reader import Corpus, Rows
from pipeline.encode import registry
from pipeline.encode.base import Encoder
from pipeline.encode.kinds import Aspire, Mean, Transformer
from pipeline.encode.known import recorded
from pipeline.encode.model import Model, Role
from pipeline.encode.shards import CorpusTexts, ShardWriter
from pipeline.encode.store import (
    VectorStore,
    read_rows,
    shard_name,
    shard_number,
    write_rows,
)
from pipeline.stages.imported import Import
from pipeline.stages.ranking_file import open_pool, stored_segments

_VERSION, _TRANSFORMER_VERSION = 1, 3
"""Versions of the stage: for other encoders, and for transformers."""


@dataclass(frozen=True)
class EmbedConfig:
    """Settings that determine vectors, besides the papers: the encoder and the role of the texts."""

    encoder: Mapping[str, Any]
    role: Role


def embed_tasks(corpus: Artifact, pool: Task | Artifact, model: Model) -> dict[Role, Task]:
    """Return the tasks that embed a pool: its papers and, where its queries are not papers, its query texts.

    A segment holds the vectors that earlier segments lack. Its store has all vectors of the pool:
    ``store_of(runner.make(task))``.
    """
    if canonical(pool.config)["queries_are"] != "texts":
        papers: dict[Role, Task] = {"paper": _embed_task(corpus, pool, model, "paper")}
        querying = query_paper_model(model)
        return papers if querying == model else {**papers, "query": _embed_task(corpus, pool, querying, "query_paper")}
    if model.place and not model.query:
        raise InputError(
            f"{model.name} must have vectors of the query texts of {corpus.manifest.slug}, got none",
            "Name their file: vectors:FILE:queries=FILE",
        )
    return {
        "paper": _embed_task(corpus, pool, passage_model(model), "paper"),
        "query": _embed_task(corpus, pool, query_model(model), "query"),
    }


def fit_task(corpus: Artifact, model: Model) -> Task | None:
    """Return the task that fits a model on a corpus, or on the one it names; None for a model that needs no fit.

    A fit does not checkpoint: after a kill it starts again. LSA reads at most 20,000 papers by default and 64 million
    characters, and takes about 6 seconds on one core for a corpus of any size.
    """
    if not model.fitter:
        return None
    corpus = _fitted_on(corpus, model)

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        return model.fit(Corpus(inputs["corpus"]), out)

    return Task("fit", 3, FITS, f"{corpus.manifest.slug}-{model.slug}", model.identity, {"corpus": corpus}, run)


def _fitted_on(corpus: Artifact, model: Model) -> Artifact:
    """Return the corpus that a model is fitted on: the one it names, else the one it encodes."""
    name = getattr(model, "corpus", "")
    return find_corpus(corpus.path.parents[1], name) if name else corpus


def query_model(model: Model) -> Model:
    """Return the encoder of ad-hoc queries: the model itself, unless its registry entry names another."""
    return registry.resolve(model.query) if model.query else model


def passage_model(model: Model) -> Model:
    """Return the encoder of papers that ad-hoc queries search: the model itself, unless they have another prefix."""
    return _prefixed(model, lambda part: part.passage_prefix)


def query_paper_model(model: Model) -> Model:
    """Return the encoder of papers that are queries: the model itself, unless they have another prefix."""
    return _prefixed(model, lambda part: part.query_paper_prefix)


def _prefixed(model: Model, prefix_of: Callable[[Model], str | None]) -> Model:
    """Return a model that reads papers with the prefix of ``prefix_of``, if it has one."""
    if isinstance(model, Mean):
        return dataclasses.replace(model, parts=tuple(_prefixed(part, prefix_of) for part in model.parts))
    prefix = prefix_of(model)
    if isinstance(model, Transformer) and prefix is not None:
        return dataclasses.replace(model, paper_prefix=prefix)
    return model


def _version(model: Model) -> int:
    """Return the version of the stage for an encoder, or the highest of its parts."""
    if model.parts:
        return max(map(_version, model.parts))
    return _TRANSFORMER_VERSION if isinstance(model, Transformer | Aspire) else _VERSION


def store_folder(corpus: Artifact, model: Model, role: Role = "paper") -> str:
    """Return the name of the folder, below ``indexes/vectors``, with the vectors of one corpus by one encoder."""
    identity_of = {"version": _version(model), "corpus": corpus.id, "config": EmbedConfig(model.identity, role)}
    if (fitted_on := _fitted_on(corpus, model)) != corpus:
        identity_of["fitted_on"] = fitted_on.id
    identity = digest(identity_of)
    kind = "" if role == "paper" else f"-{role}"
    return f"{corpus.manifest.slug}-{model.base_slug}{kind}-{identity[:SHORT_ID]}"


def store_of(*segments: Artifact, dimension: int = 0) -> VectorStore:
    """Open the store of published segments; it holds them even if the folder listing does not show them yet."""
    folder = segments[0].path.parent
    by_name = {segment.name: segment for segment in [*published(folder), *segments]}
    return VectorStore(folder, [by_name[name] for name in sorted(by_name)], dimension)


def stored_tasks(root: Path, corpus: Artifact, model: Model, role: Role = "paper") -> list[Task]:
    """Return the tasks of :func:`pipeline.stages.ranking_file.stored_segments` of a vector store."""
    variants = dict.fromkeys((model, passage_model(model), query_paper_model(model)))
    return stored_segments(root, lambda pool: [_embed_task(corpus, pool, variant, role) for variant in variants])


def _embed_task(corpus: Artifact, pool: Task | Artifact, model: Model, role: Role) -> Task:
    """Return the task of a pool's segment; imported vectors are one segment for all pools."""
    folder, config = f"{VECTORS}/{store_folder(corpus, model, role)}", EmbedConfig(model.identity, role)
    if model.place:
        return Task("embed", _VERSION, folder, "all", config, {"corpus": corpus}, units=Import(model, role))
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    fit = fit_task(corpus, model)
    if fit is not None:
        inputs["fit"] = fit
    return Task("embed", _version(model), folder, pool.slug, config, inputs, units=Embedding(model, role))


@dataclass(frozen=True)
class Embedding(Sharded):
    """Encoding of the texts of one role in a segment, with one unit per corpus shard."""

    model: Model
    role: Role
    accelerated = True

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:  # noqa: ARG002
        """List the papers that no other segment of the store has; return a unit per corpus shard."""
        if not out.done("rows.arrow"):
            texts = CorpusTexts(Corpus(inputs["corpus"]), self.role)
            missing = VectorStore.without(out.path.parent, inputs["pool"]).missing(self._rows_needed(inputs))
            write_rows(out, missing, texts.shards(missing))
        shard_numbers, counts = np.unique(read_rows(out)[1], return_counts=True)
        return dict(zip(map(shard_name, shard_numbers.tolist()), counts.tolist(), strict=True))

    def devices(self, resources: Resources) -> list[str]:
        """Return the devices the model can be loaded on."""
        return self.model.devices(resources)

    def work(self, inputs: Inputs, out: Workdir, units: Collection[str], resources: Resources) -> UnitProvenance:
        """Embed some shards, on one device."""
        texts = CorpusTexts(Corpus(inputs["corpus"]), self.role)
        rows, owners = read_rows(out)
        device = self.devices(resources)[0]

        def load() -> Encoder:
            on_device = dataclasses.replace(resources, device=device)
            encoder: Encoder = self.model.load(inputs.get("fit"), on_device)
            return encoder

        title = f"embed {self.model.name}" + (f" on {device}" if ":" in device else "")
        shards = {shard: rows[owners == shard] for shard in map(shard_number, sorted(units))}
        return ShardWriter(out, texts, load, self.model.storage, device).write(shards, title)

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[UnitProvenance]) -> Counts:  # noqa: ARG002
        """Return the counts of the segment."""
        checkpoint = self.model.files.hub if self.model.files else ""
        out.note(model=self.model.name, checkpoint=checkpoint, recipe=self.model.recipe, **recorded(self.model))
        out.note(**_merged_facts(facts))
        needed = len(self._rows_needed(inputs))
        rows, shards = read_rows(out)
        totals = Counter(tokens=0, padded=0, truncated=0)
        for shard in np.unique(shards).tolist():
            counts = out.counts(shard_name(shard))
            totals.update({name: counts.get(name, 0) for name in totals})
        return {"wanted": needed, "present": needed - len(rows), "embedded": len(rows), **totals}

    def _rows_needed(self, inputs: Inputs) -> Rows:
        """Return the rows of the pool that need vectors."""
        pool = open_pool(inputs)
        return pool.papers if self.role == "paper" else pool.query_rows


def _merged_facts(facts: Sequence[UnitProvenance]) -> dict[str, Any]:
    """Return the facts of the first process, with the rates of all processes added up."""
    runs = [run for run in facts if run]
    merged: dict[str, Any] = dict(runs[0]) if runs else {}
    merged.pop("process", None)
    fact_counts = Counter(run.get("process") for run in runs)
    for name in ("documents_per_second", "tokens_per_second"):
        if name in merged:
            merged[name] = round(sum(run.get(name, 0.0) / fact_counts[run.get("process")] for run in runs), 2)
    if len(fact_counts) > 1:
        merged["processes"] = len(fact_counts)
    return merged
