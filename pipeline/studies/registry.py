"""The studies by name: ``module:object`` below ``pipeline.studies``, imported when one is run."""

from __future__ import annotations

import importlib

from pipeline.core.errors import InputError, nearest
from pipeline.studies.base import Study

STUDIES = {
    "pool_size": "pool_size:STUDY",
    "neighbours": "neighbours.study:STUDY",
    "scirepeval": "scirepeval.study:STUDY",
    "large_scale": "large_scale.study:STUDY",
    "mdcr": "mdcr.study:STUDY",
    "mdcr_eval": "mdcr.scores:STUDY",
    "mdcr_checks": "mdcr.checks:STUDY",
    "facets": "facets.study:STUDY",
    "facet_pools": "facets.build:STUDY",
}


def find(name: str) -> Study:
    """Return a study.

    Raises:
        InputError: no study has that name; the message suggests the nearest.
    """
    if name not in STUDIES:
        raise InputError(f"the study must be one of {', '.join(STUDIES)}, got {name!r}", nearest(name, STUDIES))
    module, _, attribute = STUDIES[name].partition(":")
    study: Study = getattr(importlib.import_module(f"pipeline.studies.{module}"), attribute)
    return study
