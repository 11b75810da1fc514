"""The prefilter of MDCR (Medić & Šnajder 2022, section 3; protocol 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.schema import NO_YEAR
from pipeline.corpus.poolconfig import PrefilterConfig as PrefilterConfig

Attributes = Mapping[str, npt.NDArray[Any]]
Mask = npt.NDArray[np.bool_]


def has_text(attributes: Attributes, config: PrefilterConfig) -> Mask:
    """Return which papers have a title and a long enough abstract, bool ``[papers]``."""
    long_enough = attributes["abstract_chars"] >= config.min_abstract_chars
    mask: Mask = (attributes["title_chars"] > 0) & long_enough
    return mask


def prefilter(attributes: Attributes, config: PrefilterConfig) -> tuple[Mask, dict[str, int]]:
    """Return which papers are kept, bool ``[papers]``, and the counts: each dropped one under its first reason."""
    outbound, inbound = attributes["n_outbound"], attributes["n_inbound"]
    citations = {"outbound": outbound, "inbound": inbound}.get(config.citation_direction)
    if citations is None:
        citations = outbound.astype(np.int64) + inbound
    tests = {
        "no_year": attributes["year"] == NO_YEAR,
        "no_title": attributes["title_chars"] == 0,
        "short_abstract": attributes["abstract_chars"] < config.min_abstract_chars,
        "few_citations": citations < config.min_citations,
    }
    kept = np.ones(len(attributes["year"]), dtype=bool)
    counts = {"read": len(kept)}
    for reason, failing in tests.items():
        counts[f"dropped_{reason}"] = int(np.count_nonzero(kept & failing))
        kept &= ~failing
    counts["kept"] = int(np.count_nonzero(kept))
    return kept, counts
