"""Stage ``embed``: the vectors of a pool's papers that the store of their corpus and encoder does not have yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.core.artifact import Artifact, published
from pipeline.core.config import SHORT_ID, canonical, digest
from pipeline.core.task import Task
from pipeline.core.workspace import POOLS, VECTORS
from pipeline.encode import registry
from pipeline.encode.spec import EncoderSpec, Model, Role
from pipeline.encode.store import VectorStore
from pipeline.stages.embedding import Embedding
from pipeline.stages.fit import fit_task

_VERSION = 1


@dataclass(frozen=True)
class EmbedConfig:
    """What decides vectors, beside the papers: the encoder, and what it takes the texts for."""

    encoder: EncoderSpec
    role: Role


def embed_tasks(corpus: Artifact, pool: Task | Artifact, model: Model) -> dict[Role, Task]:
    """Return the tasks that embed a pool: its papers and, where its queries are no papers, its query texts.

    A segment holds what earlier ones do not. Whoever made it, the store its artifact lies in has all vectors of the
    pool: ``store_of(runner.make(task))``.
    """
    tasks: dict[Role, Task] = {"paper": _embed_task(corpus, pool, model, "paper")}
    config = canonical(pool.config) if isinstance(pool, Task) else pool.manifest.config
    if config["queries_are"] == "texts":
        tasks["query"] = _embed_task(corpus, pool, query_model(model), "query")
    return tasks


def query_model(model: Model) -> Model:
    """Return the encoder of ad-hoc queries: the model itself, unless its entry names another.

    Raises:
        InputError: there is none of that name.
        StageError: it has to be looked up on the hub, which cannot be reached.
    """
    return registry.resolve(model.query) if model.query else model


def store_folder(corpus: Artifact, model: Model, role: Role = "paper") -> str:
    """Return the name of the folder, below ``indexes/vectors``, with the vectors of one corpus by one encoder."""
    identity = digest({"version": _VERSION, "corpus": corpus.id, "config": EmbedConfig(model.spec, role)})
    kind = "" if role == "paper" else f"-{role}"
    return f"{corpus.manifest.slug}-{model.base_slug}{kind}-{identity[:SHORT_ID]}"


def open_store(root: Path, corpus: Artifact, model: Model, role: Role = "paper") -> VectorStore:
    """Open the store of one corpus and encoder below a workspace, empty where nothing was embedded."""
    return VectorStore.open(root / VECTORS / store_folder(corpus, model, role))


def store_of(*segments: Artifact) -> VectorStore:
    """Open the store that published segments belong to; it holds them even where a listing does not show them yet."""
    folder = segments[0].path.parent
    found = {each.name: each for each in [*published(folder), *segments]}
    return VectorStore(folder, [found[name] for name in sorted(found)])


def stored_tasks(root: Path, corpus: Artifact, model: Model, role: Role = "paper") -> list[Task]:
    """Return the task of every segment in a store, so that all can be repaired.

    A segment whose pool is gone is left out: it can be read but not made again.
    """
    pools = {pool.id: pool for pool in published(root / POOLS)}
    made_for = [
        segment.manifest.inputs["pool"] for segment in published(root / VECTORS / store_folder(corpus, model, role))
    ]
    return [_embed_task(corpus, pools[pool], model, role) for pool in made_for if pool in pools]


def _embed_task(corpus: Artifact, pool: Task | Artifact, model: Model, role: Role) -> Task:
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    fit = fit_task(corpus, model)
    if fit is not None:
        inputs["fit"] = fit
    slug = pool.slug if isinstance(pool, Task) else pool.manifest.slug
    room = f"{VECTORS}/{store_folder(corpus, model, role)}"
    return Task("embed", _VERSION, room, slug, EmbedConfig(model.spec, role), inputs, units=Embedding(model, role))
