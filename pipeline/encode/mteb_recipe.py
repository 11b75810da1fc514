"""The recipe of a model as MTEB runs it (Muennighoff et al. 2023): ``mteb:ORGANISATION/NAME``."""

from __future__ import annotations

from typing import Any

from pipeline.core.errors import InputError
from pipeline.core.install import pip

_DISTANCES = {"cosine": "cosine", "dot": "inner_product", "euclidean": "l2"}


def entry(name: str) -> dict[str, Any]:
    """Return what ``mteb.get_model_meta`` says of a model, as an entry of ``models.toml``.

    It gives the commit, the distance and the prompts. Modules, length and other prompts are those of the folder.

    Raises:
        InputError: mteb is not installed, does not know the model, or has no commit of it.
    """
    try:
        import mteb
    except ImportError as error:
        raise InputError(f"mteb:{name} needs the package mteb", pip("install mteb")) from error
    try:
        meta = mteb.get_model_meta(name)
    except (KeyError, ValueError) as error:
        raise InputError(f"mteb has no model {name!r}", f"Write hf:{name} to take the recipe of its folder") from error
    if not meta.revision:
        raise InputError(f"mteb has no commit of {name}, so no weights that can be named", "Choose another model")
    found: dict[str, Any] = {"hub": meta.name, "revision": meta.revision, "licence": str(meta.license or "")}
    similarity = getattr(meta.similarity_fn_name, "value", meta.similarity_fn_name)
    if similarity in _DISTANCES:
        found["distance"] = _DISTANCES[similarity]
    prompts = (meta.loader_kwargs or {}).get("model_prompts") or {}
    for key, role in (("paper_prefix", "document"), ("query_prefix", "query")):
        if role in prompts:
            found[key] = prompts[role]
    return found
