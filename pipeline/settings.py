"""Settings as users write them: which pools, and which of what was scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.core.settings import convert, read
from pipeline.corpus.poolconfig import SETTINGS
from pipeline.stages.pool import exclusions
from pipeline.stages.selection import selection as selection

if TYPE_CHECKING:
    from pipeline.report.choice import Choice

Names = str | Sequence[str]
"""One name, several separated by commas, or a list of them."""


def choice(**settings: Any) -> Choice:
    """Read the settings of a choice as users type them; None restricts nothing.

    Raises:
        InputError: a setting or its value is unknown, or of another type.
    """
    from pipeline.measure.measures import parse_measures
    from pipeline.report.choice import Choice
    from pipeline.stages.systems import parse_precision, stored_names

    readers: dict[str, Callable[[Any], Any]] = {
        "corpus": lambda name: convert(name, str, "--corpus"),
        "systems": lambda names: stored_names(joined(names)),
        "depth": lambda depth: convert(depth, int, "--depth"),
        "precision": parse_precision,
        "engine": lambda name: "exact" if name in ("auto", "faiss", "ray") else name,  # the same rankings
        "missing_positives": lambda way: convert(way, str, "--missing-positives"),
        "measures": lambda names: tuple(map(str, parse_measures(joined(names)))),
    }
    pools = read(SETTINGS, {name: value for name, value in settings.items() if name not in readers}, [*readers])
    if "exclude" in pools:
        pools["exclude"] = exclusions(pools["exclude"])
    others = {name: parse(settings[name]) for name, parse in readers.items() if settings.get(name) is not None}
    return Choice(pools=pools, **others)


def joined(names: Names) -> str:
    """Return names as one text, separated by commas."""
    return names if isinstance(names, str) else ",".join(names)
