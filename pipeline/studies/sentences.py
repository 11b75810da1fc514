"""How near two papers are by the vectors of their sentences (Mysore et al. 2022): the best pair, optimal transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist
from scipy.special import softmax

from pipeline.core.errors import InputError
from pipeline.core.install import pip_extra

Sentences = npt.NDArray[np.floating]
"""The vectors of a paper's sentences, ``[sentences, d]``."""
Pairing = Literal["best pair", "transport"]

_BLUR = 0.05
"""Regularisation of the entropic transport: the authors' blur, at power 1."""


def transport_score(query: Sentences, paper: Sentences) -> float:
    """Return the negated cost of moving a query's sentences to a paper's, vectors ``[m, d]`` and ``[n, d]``.

    It is that of ASPIRE's released code (Mysore et al. 2022, section 3.3): entropic, of L2 distances; a sentence weighs
    the softmax of its negated smallest distance. POT solves it.
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
