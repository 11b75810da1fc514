"""Settings of ranking and scoring, and of the choice of stored scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pipeline.core.settings import setting, settings_of

DEFAULT_DEPTH = 500
"""Default number of entries ranked per query (protocol 4)."""

_PRECISION = "compute precision of encoders: fp32, fp16 or bf16"


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """How pools are ranked and scored.

    An index of Faiss is evaluated after exact search (:func:`pipeline.retrieve.engines.parse_settings`).
    """

    allow_unknown: bool = setting(False, "run:FILE: leave out what a pool does not have")
    depth: int = setting(DEFAULT_DEPTH, "ranks kept of each query")
    engine: str = setting(
        "auto",
        "dense search. Exact, with one ranking: auto, exact (CPU or GPU), faiss, or ray (a Ray cluster). "
        "Approximate, scored beside exact: any index of faiss.index_factory, with options after a second colon, "
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
class Systems:
    """The systems of a command that ranks, and how their encoders compute."""

    model: str | None = setting(
        None,
        "systems with commas: bm25 (tuned, where mdcr tune was run), bm25:tuned, bm25:k1=1.2,b=0.75, scincl, lsa, "
        "mean(a,b), rrf(bm25,lsa), wsum(bm25,lsa), rerank(bm25,cross:org/name,100) or maxsim: likewise, hf:org/name, "
        "a folder, vectors:FILE (vectors made elsewhere), run:FILE (a run of another tool); "
        "with a label for the tables: mine=/a/folder",
    )
    precision: str | None = setting(None, f"{_PRECISION} (default: the model's)")
    ray_address: str | None = setting(
        None, "cluster of --engine=ray (default: auto, else local)", goes_with="engine=ray"
    )
    run: tuple[str, ...] = setting(
        (),
        "run of another tool: TREC, .json or .parquet (docs/interchange.md); may be repeated",
        metavar="[NAME=]FILE",
    )


SYSTEMS = settings_of(Systems)


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
    precision: str | None = setting(None, _PRECISION)
    engine: str | None = setting(None, "exact, or an index beside it, such as faiss:HNSW32")
    missing_positives: Literal["ignore", "count"] | None = setting(
        None, "judged positives that the collection lacks: ignore or count"
    )
    measures: Any = setting(None, "with commas, in the order of the columns (default: map,ndcg,recall@30)")


CHOICE = settings_of(Choice)


@dataclass(frozen=True)
class Display:
    """How scores are shown."""

    format: str | None = setting(None, "terminal (default), markdown, csv or latex")
    baseline: str | None = setting(None, "row to test the others against, by name or label (default: bm25)")
    margin: float | None = setting(
        None, "points: test whether systems are equivalent, within this difference of a measure in percent"
    )
    resample: Literal["queries", "papers", "both"] | None = setting(
        None, "what the bootstrap resamples: queries (default), papers (the samples of a pool), or both"
    )
    sort: str | None = setting(None, "rows by this measure, best first (default: as --model)", metavar="MEASURE")


DISPLAY = settings_of(Display)
