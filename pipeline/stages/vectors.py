"""The vector stores of a workspace, described and spot-checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.core.artifact import Artifact, published
from pipeline.core.config import canonical
from pipeline.core.errors import MdcrError
from pipeline.core.resources import Resources
from pipeline.core.workspace import CORPORA, VECTORS
from pipeline.corpus.reader import Corpus
from pipeline.encode import kinds, registry
from pipeline.encode.spec import Role
from pipeline.encode.store import VectorStore
from pipeline.encode.survey import spot_check, spot_rows, stored_rows, survey
from pipeline.stages.embedding import CorpusTexts


def describe_stores(root: Path, corpus: str | None, spot: int, resources: Resources) -> Iterator[dict[str, Any]]:
    """Yield one description a store below a workspace.

    Args:
        root: the workspace.
        corpus: identity of the corpus that is meant; None for all.
        spot: papers of each store to encode again; 0 for none.
        resources: device and threads of that.

    Raises:
        CorruptError: a shard differs from its manifest; it is named.
    """
    corpora = {artifact.id: artifact for artifact in published(root / CORPORA)}
    for folder in sorted((root / VECTORS).glob("[!.]*")):
        segments = list(published(folder))
        if segments and corpus in (None, segments[0].manifest.inputs["corpus"]):
            yield _describe(folder, segments, corpora, spot, resources)


def _describe(
    folder: Path, segments: list[Artifact], corpora: dict[str, Artifact], spot: int, resources: Resources
) -> dict[str, Any]:
    first = segments[0].manifest
    role: Role = first.config["role"]
    encoder = first.config["encoder"]
    artifact = corpora.get(first.inputs["corpus"])
    store = VectorStore(folder, segments)
    rows = stored_rows(store)
    found: dict[str, Any] = {
        "store": folder.name,
        "model": first.provenance.get("model", ""),
        "role": role,
        "precision": f"{encoder.get('compute', 'float32')}/{encoder['storage']}",
        "segments": len(segments),
        "papers": len(rows),
        "MB": round(sum(output.bytes for each in segments for output in each.manifest.outputs) / 1e6, 1),
    }
    if not len(rows):
        return found
    figures = survey(store, rows)
    found |= {
        "vectors_a_paper": round(figures.vectors, 2),
        "dimension": figures.dimension,
        "norm": f"{figures.mean:.4g} ({figures.shortest:.4g} to {figures.longest:.4g})",
        "zeros": figures.zeros,
        "mean_cosine": round(figures.similarity, 4),
    }
    if artifact is None:
        return {**found, "coverage": "corpus is gone"}
    texts = CorpusTexts(Corpus(artifact), role)
    whole = len(texts.corpus) if role == "paper" else len(texts.corpus.query_texts)
    found["coverage"] = f"{len(rows) / whole:.1%}"
    if spot:
        found["spot_check"] = _spot(store, segments[0], texts, role, spot_rows(rows, spot), resources)
    return found


def _spot(
    store: VectorStore, segment: Artifact, texts: CorpusTexts, role: Role, rows: Any, resources: Resources
) -> str:
    """Return what encoding some papers again gave, or why it could not be done."""
    fits = {artifact.id: artifact for artifact in published(segment.path.parents[1].parent / "fits")}
    try:
        model = registry.resolve(segment.manifest.provenance["model"])
        if canonical(model.spec) != segment.manifest.config["encoder"]:
            return "the model of that name is another one now"
        fit = segment.manifest.inputs.get("fit")
        encoder = kinds.find(model.spec.kind).load(model, fits[fit] if fit else None, resources)
    except (MdcrError, KeyError) as error:
        return f"not possible: {error}"
    checked = spot_check(store, rows, texts(rows), encoder, role)
    return f"{checked.papers} papers: cosine {checked.cosine:.6f}, largest difference {checked.difference:.2g}"
