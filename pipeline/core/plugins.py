"""What other packages bring: encoders, measures and sources that they register when they are loaded."""

from __future__ import annotations

import functools
from importlib.metadata import entry_points

from pipeline.core.errors import InputError

GROUP = "mdcr"
"""Entry points of this group name modules; loading one registers what it brings."""


@functools.cache
def load() -> tuple[str, ...]:
    """Load what is installed, once, and return the names of the entry points.

    Raises:
        InputError: one cannot be loaded.
    """
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    for entry in found:
        try:
            entry.load()
        except Exception as error:
            raise InputError(
                f"the plug-in {entry.name} ({entry.value}) cannot be loaded ({type(error).__name__}: {error})",
                "Mend its package, or uninstall it",
            ) from error
    return tuple(entry.name for entry in found)
