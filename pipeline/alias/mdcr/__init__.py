"""Large-scale retrieval evaluation of scientific article encoders: the Python interface of the folder ``pipeline``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pipeline
from pipeline import __all__ as __all__
from pipeline import __version__ as __version__

if TYPE_CHECKING:
    from pipeline import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that ``import mdcr`` is instant."""
    try:
        return getattr(pipeline, name)
    except AttributeError as error:
        raise AttributeError(str(error).replace("'pipeline'", "'mdcr'")) from None


def __dir__() -> list[str]:
    return sorted(__all__)
