"""Optimal transport between the sentences of two papers (Mysore et al. 2022, ASPIRE, section 3.3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist
from scipy.special import softmax

from pipeline.core.errors import InputError
from pipeline.core.install import pip_extra

REGULARISATION = 0.05
"""Of the entropic problem: the authors' blur, at power 1."""


def transport_score(query: npt.NDArray[np.floating], paper: npt.NDArray[np.floating]) -> float:
    """Return the negated cost of moving a query's sentences to a paper's, vectors ``[m, d]`` and ``[n, d]``.

    Raises:
        InputError: POT is not installed.
    """
    try:
        import ot
    except ImportError as error:
        raise InputError(f"optimal transport needs POT ({error})", pip_extra("facets")) from error
    distances = cdist(query, paper)
    weights = [softmax(-distances.min(axis=axis)) for axis in (1, 0)]
    plan = ot.sinkhorn(*weights, distances, REGULARISATION, method="sinkhorn_log", warn=False)
    return -float((plan * distances).sum())
