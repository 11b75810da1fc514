"""Views of stored vectors: fewer components, or coarser ones, without a second embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pipeline.encode.spec import Model, Quantise

_UNIT = 1e-2
"""How far a length may be from 1 for a vector that was stored normalised, in half precision too."""


class View(NamedTuple):
    """How stored vectors are compared.

    Attributes:
        dimension: components that are kept, the first ones (Kusupati et al. 2022); 0: all. A vector of length 1 is
            scaled to length 1 again.
        quantise: ``int8``: 255 levels between plus and minus the vector's largest component; ``binary``: the sign, 1 or
            -1; empty: as stored. Levels are those of each vector alone, so no sample decides them.
    """

    dimension: int = 0
    quantise: Quantise = ""

    def components(self, stored: int) -> int:
        """Return the components of vectors that have ``stored`` of them on disk.

        Raises:
            InputError: they have fewer than are asked for.
        """
        if self.dimension > stored:
            raise InputError(f"dimension must be at most {stored}, got {self.dimension}", "Leave it out for all")
        return self.dimension or stored

    def __call__(self, vectors: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
        """Return float32 ``[n, d]`` as it is compared, of vectors ``[n, stored]``; a zero vector stays zero."""
        import numpy as np  # here, so that names resolve without it

        if self == WHOLE:
            return vectors
        if self.dimension and self.dimension < vectors.shape[1]:
            unit = np.abs(np.linalg.norm(vectors.astype(np.float32), axis=1) - 1) < _UNIT
            vectors = np.ascontiguousarray(vectors[:, : self.dimension], np.float32)
            lengths = np.linalg.norm(vectors, axis=1)
            vectors[unit] /= np.maximum(lengths[unit], np.finfo(np.float32).tiny)[:, None]
        if self.quantise == "int8":
            most = np.abs(vectors).max(axis=1, initial=0, keepdims=True)
            steps = np.where(most > 0, most / 127, 1).astype(np.float32)
            rounded: npt.NDArray[np.floating[Any]] = np.rint(vectors / steps) * steps
            return rounded
        if self.quantise == "binary":
            return np.where(np.any(vectors, axis=1, keepdims=True), np.where(vectors > 0, 1, -1), 0).astype(np.float32)
        return vectors


WHOLE = View()
"""Vectors as they are stored."""


def whole(model: Model) -> Model:
    """Return a model whose stored vectors are compared as they are.

    Raises:
        InputError: it is a view of them, which only rankings of pools take.
    """
    if model.view != WHOLE:
        raise InputError(f"{model.name} must be compared by whole vectors here", "Leave out dimension and quantise")
    return model
