"""Settings of ranking and scoring, and of the choice of stored scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pipeline.core.settings import setting, settings_of

DEFAULT_DEPTH = 500
"""Default number of entries ranked per query (protocol 4)."""

PRECISION = "compute precision of encoders: fp32, fp16 or bf16"
"""Help of a setting."""


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """How pools are ranked and scored.

    An index of Faiss is evaluated after exact search (:func:`pipeline.retrieve.engines.parse_settings`).
    """

    allow_unknown: bool = setting(False, "run:FILE: leave out what a pool does not have")
    depth: int = setting(DEFAULT_DEPTH, "ranks kept of each query")
    engine: str = setting(
        "exact",
        "dense search: exact, on this machine or, with ray, a Ray cluster. "
        "Approximate, compared with exact: any index of faiss.index_factory, with options after a second colon, "
        "faiss:HNSW32 or faiss:IVF4096,Flat:nprobe=32, on a GPU faiss-gpu:IVF4096,Flat",
    )
    bm25_engine: Literal["postings", "lucene"] = setting(
        "postings", "BM25: postings or lucene; the ranking is the same"
    )
    measures: tuple[str, ...] = setting(
        (), "further measures with commas, such as recall@50,f1; mdcr show measures lists them", kind=str
    )
    missing_positives: Literal["ignore", "count"] = setting(
        "ignore", "positives that the collection lacks: ignore, or count them in denominators, as trec_eval does"
    )
    measure_engine: Literal["numpy", "ranx"] = setting("numpy", "numpy or ranx; the scores are the same")


RANKED = settings_of(Ranked)


@dataclass(frozen=True)
class Choice:
    """Which stored scores, beside the settings of their pools; None: any."""

    corpus: str | None = setting(None, "name of the corpus (default: the only one)")
    systems: Any = setting(
        None,
        "systems with commas, in the order of the rows; bm25 is tuned if its pool has a tuning",
        option="model",
    )
    depth: int | None = setting(None, "ranks kept of each query")
    measures: Any = setting(None, "with commas, in the order of the columns (default: map,ndcg,recall@30)")


CHOICE = settings_of(Choice)
