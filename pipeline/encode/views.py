"""Views of stored vectors: fewer or quantised components, without embedding again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pipeline.encode.spec import Model, Quantise

_UNIT = 1e-2
"""Tolerance of the length of a vector that was normalised before it was stored, also in half precision."""


class VectorTransform(NamedTuple):
    """How stored vectors are compared.

    Attributes:
        dimension: number of first components to keep (Kusupati et al. 2022); 0: all. Vectors of length 1 are
            normalised again.
        quantise: ``int8``: 255 levels between plus and minus the vector's largest component; ``binary``: the sign, 1 or
            -1; empty: as stored.
    """

    dimension: int = 0
    quantise: Quantise = ""

    def components(self, stored: int) -> int:
        """Return the number of components of a view of vectors with ``stored`` components.

        Raises:
            InputError: the view has more components than the vectors.
        """
        if self.dimension > stored:
            raise InputError(f"dimension must be at most {stored}, got {self.dimension}", "Leave it out for all")
        return self.dimension or stored

    def __call__(self, vectors: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
        """Return the view, float32 ``[n, d]``, of vectors ``[n, stored]``; zero vectors stay zero."""
        import numpy as np  # here, so that names resolve without it

        if self == WHOLE:
            return vectors
        if self.dimension and self.dimension < vectors.shape[1]:
            unit = np.abs(np.linalg.norm(vectors.astype(np.float32), axis=1) - 1) < _UNIT
            vectors = np.ascontiguousarray(vectors[:, : self.dimension], np.float32)
            lengths = np.linalg.norm(vectors, axis=1)
            vectors[unit] /= np.maximum(lengths[unit], np.finfo(np.float32).tiny)[:, None]
        if self.quantise == "int8":
            largest = np.abs(vectors).max(axis=1, initial=0, keepdims=True)
            steps = np.where(largest > 0, largest / 127, 1).astype(np.float32)
            rounded: npt.NDArray[np.floating[Any]] = np.rint(vectors / steps) * steps
            return rounded
        if self.quantise == "binary":
            return np.where(np.any(vectors, axis=1, keepdims=True), np.where(vectors > 0, 1, -1), 0).astype(np.float32)
        return vectors


WHOLE = VectorTransform()
"""Vectors as they are stored."""


def whole(model: Model) -> Model:
    """Return a model after checking that it uses whole vectors; only rankings of pools take views.

    Raises:
        InputError: the model has a view.
    """
    if model.view != WHOLE:
        raise InputError(f"{model.name} must be compared by whole vectors here", "Leave out dimension and quantise")
    return model
