"""The settings of the study ``large_scale``, and the pools that they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.api import selection
from pipeline.core.errors import InputError, nearest
from pipeline.corpus.poolconfig import SETTINGS
from pipeline.scores.average import Draws
from pipeline.stages.selection import Selection
from pipeline.studies.recipe import NO_RULES, Rules, pools_of

DATASET = "dataset"
"""Name of the dataset-level pools among the fields of a recipe."""

_OWN = ("sizes", *(name for name in SETTINGS if name not in ("field", "size")))
"""Settings that a field may have of its own."""


@dataclass(frozen=True)
class Recipe:
    """Settings of the study.

    Attributes:
        corpus: name of the corpus; empty: the only one.
        fields: of the 19 fields, with commas, ``all``, or ``dataset`` for dataset-level pools.
        sizes: numbers of candidates, such as ``200k``, or ``all``.
        year: publication year of the queries.
        queries: number of queries, or ``all``.
        samples: samples of each size.
        seed: of every draw.
        nested: whether smaller pools are subsets of larger ones.
        positives: ``corpus`` or ``prefiltered``, as ``--positives``.
        systems: what ranks, with commas.
        baseline: the system that the others are tested against.
        depth: ranks kept of each query.
        training: files of paper ids that systems were trained on, for the leakage audit.
        own: for a field, its own ``sizes``, ``year``, ``queries`` or other settings of pools.
        rules: further settings of pools that the recipe gives, such as ``min_citations``.
    """

    corpus: str
    fields: str
    sizes: tuple[str, ...]
    year: int
    queries: str
    samples: int
    seed: int
    nested: bool
    positives: Literal["corpus", "prefiltered"]
    systems: str
    baseline: str
    depth: int
    training: tuple[str, ...]
    own: Mapping[str, Mapping[str, Any]]
    rules: Rules = NO_RULES

    @property
    def groups(self) -> tuple[str, ...]:
        """The fields, ``dataset`` first.

        Raises:
            InputError: a field is unknown, or has settings of its own and no pools.
        """
        named = [name.strip() for name in self.fields.split(",") if name.strip()]
        others = ",".join(name for name in named if name != DATASET)
        found = (*((DATASET,) if DATASET in named else ()), *(SETTINGS["field"].read(others)))
        for name, settings in self.own.items():
            if name not in found:
                raise InputError(
                    f"own settings must be of one of {', '.join(found)}, got {name!r}", "Correct the recipe"
                )
            for key in settings:
                if key not in _OWN:
                    raise InputError(f"a setting of {name} must be one of {', '.join(_OWN)}, got {key!r}",
                                     nearest(key, _OWN))  # fmt: skip
        return found

    @property
    def selections(self) -> list[Selection]:
        """The pools, field by field."""
        return [self._selection(group) for group in self.groups]

    def _selection(self, group: str) -> Selection:
        own = {"size" if name == "sizes" else name: value for name, value in self.own.get(group, {}).items()}
        return selection(**{**pools_of(self), **own, "field": None if group == DATASET else group})

    @property
    def draws(self) -> Draws:
        """What decides intervals and tests."""
        return Draws(seed=self.seed)
