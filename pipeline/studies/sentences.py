"""Similarity of two papers by their sentence vectors (Mysore et al. 2022): best pair or optimal transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist
from scipy.special import softmax

from pipeline.core.errors import InputError
from pipeline.core.install import pip_extra
from pipeline.encode.names import Name

Sentences = npt.NDArray[np.floating]
"""The vectors of a paper's sentences, ``[sentences, d]``."""
Pairing = Literal["best pair", "transport"]

_BLUR = 0.05
"""Regularisation of entropic transport: the authors' blur, to the power of 1."""


def transported(name: Name) -> str:
    """Return the encoder of ``ot(ENCODER)``, which compares papers by transport; empty for other names."""
    return ",".join(map(str, name.parts or ())) if name.base == "ot" else ""


def transport_score(query: Sentences, paper: Sentences) -> float:
    """Return the negated optimal transport cost between sentence vectors ``[m, d]`` and ``[n, d]``.

    As in ASPIRE's released code (Mysore et al. 2022, section 3.3), transport is entropic with L2 distances, and
    sentences are weighted by the softmax of their negated smallest distance. POT solves it.
    """
    try:
        import ot
    except ImportError as error:
        raise InputError(f"optimal transport needs POT ({error})", pip_extra("facets")) from error
    distances = cdist(query, paper)
    weights = [softmax(-distances.min(axis=axis)) for axis in (1, 0)]
    plan = ot.sinkhorn(*weights, distances, _BLUR, method="sinkhorn_log", warn=False)
    return -float((plan * distances).sum())


def best_pair_score(query: Sentences, paper: Sentences) -> float:
    """Return the negated L2 distance of the nearest pair of sentences of a query and a paper."""
    return -float(cdist(query, paper).min())


SCORES: dict[Pairing, Callable[[Sentences, Sentences], float]] = {
    "best pair": best_pair_score,
    "transport": transport_score,
}
