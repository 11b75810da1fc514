"""Settings that commands alone have; those of what they make stand where it is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from pipeline.core.settings import Positive, required, setting, settings_of
from pipeline.sources.registry import SOURCES
from pipeline.stages.settings import PRECISION

_SET = "other settings; several with ;"


@dataclass(frozen=True)
class Running:
    """Settings that change no result."""

    root: Path = setting(Path(), "workspace with corpora/, indexes/ and runs/")
    memory: str | None = setting(None, "memory of a stage, such as 4G (default: half the machine)")
    workers: int | None = setting(None, "processes or threads (default: the machine's cores)")
    device: str = setting("auto", "auto, cpu, cuda or cuda:N")
    repair: bool = setting(False, "verify what is there and rebuild damaged files")
    dry_run: bool = setting(False, "print what would be made, and make nothing")
    json: bool = setting(False, "print results as JSON")
    quiet: bool = setting(False, "print only errors and what is left out")


RUNNING = settings_of(Running)


@dataclass(frozen=True)
class Systems:
    """The systems of a command that ranks, and how their encoders compute."""

    model: str | None = setting(
        None,
        "systems with commas: bm25 (tuned, where mdcr tune was run), bm25:tuned, bm25:k1=1.2,b=0.75, scincl, lsa, "
        "mean(a,b), rrf(bm25,lsa), rerank(bm25,cross:org/name,100) or maxsim: likewise, hf:org/name, "
        "a folder, vectors:FILE (vectors made elsewhere), run:FILE (a run of another tool); "
        "with a label for the tables: mine=/a/folder (default of eval: bm25)",
    )
    precision: str | None = setting(None, f"{PRECISION} (default: the model's)")
    ray_address: str | None = setting(
        None, "cluster of --engine=ray, HOST:PORT (default: the one that runs here)", goes_with="engine=ray"
    )
    run: tuple[str, ...] = setting(
        (),
        "run of another tool: TREC, .json or .parquet (docs/interchange.md); may be repeated",
        metavar="[NAME=]FILE",
    )


SYSTEMS = settings_of(Systems)


@dataclass(frozen=True)
class Display:
    """How scores are shown."""

    format: Literal["terminal", "markdown", "csv", "latex"] | None = setting(None, "default: terminal")
    brief: bool = setting(False, "for a paper: what most readers do not need is a comment", goes_with="format=latex")
    baseline: str | None = setting(None, "row to test the others against, by name or label (default: bm25)")
    resample: Literal["queries", "papers", "both"] | None = setting(
        None, "what the bootstrap resamples: queries (default), papers (the samples of a pool), or both"
    )


DISPLAY = settings_of(Display)


@dataclass(frozen=True)
class Fetch:
    """Settings of ``fetch``."""

    output: Path | None = setting(None, "folder for it (default: corpora/releases/NAME below --root)")
    connections: Positive = setting(4, "files fetched at a time")
    first: int | None = setting(None, "only N files of each dataset, for a trial", kind=Positive, metavar="N")
    endpoint: str | None = setting(None, "address of the API, for a mirror")
    release: str | None = setting(None, "a date such as 2026-09-17 (default: latest)")
    api_key_file: Path | None = setting(None, "file with the key of the API (default: $S2_API_KEY)")
    api_key: str | None = setting(None, "")  # refused without printing it
    datasets: str | None = setting(None, "with commas (default: papers,abstracts,citations)")


@dataclass(frozen=True)
class NewCorpus:
    """Settings of ``corpus``, beside those of the sources."""

    source: str = required(", ".join(SOURCES))
    input: Path | None = setting(None, "folder of the release; jsonl, parquet: or one file")
    corpus: str | None = setting(None, "name to give it (default: the source's or the task's)")
    engine: Literal["local", "ray"] = setting("local", "local, or ray: read the parts on a Ray cluster")
    duplicates: Literal["keep", "drop"] = setting("keep", "keep, or drop those of one DOI, or of one title and year")


@dataclass(frozen=True)
class Various:
    """Settings that one or two commands take."""

    strict: bool = setting(False, "fail if a field has too few papers, instead of leaving it out")
    output: Path | None = setting(None, "folder for its files (default: one in runs/reports); submission: the file")
    corpus: str | None = setting(None, "corpus in place of the recipe's")
    set: tuple[str, ...] = setting((), _SET, metavar="NAME=VALUE")
    delete: bool = setting(False, "remove it (default: list it)")
    most: Positive = setting(10, "queries that differ most", metavar="N")
    add: tuple[Path, ...] = setting(
        (), "submission to verify and count, or a folder of them; may be repeated", metavar="FILE"
    )
    training: tuple[str, ...] = setting(
        (), "training data, as of the study clean: adds values over the queries that are not in it", metavar="FILE"
    )
    measure: str | None = setting(None, "what systems are ranked by (default: map)")
    benchmarks: tuple[str, ...] = setting(
        (), "benchmark that counts, by its name, with * for any text; may be repeated (default: all)", metavar="CHOICE"
    )


VARIOUS = settings_of(Various)


@dataclass(frozen=True)
class Export:
    """Settings of ``export``, beside those of systems and pools."""

    format: str | None = setting(
        None,
        "pool: beir (default) or trec; run: trec (default) or json; scores: csv (default), parquet or eval_results; "
        "vectors: npy (default) or parquet",
    )
    output: Path | None = setting(None, "folder for the files (default: runs/exports)")


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Settings of ``evaluate``."""

    run: tuple[str, ...] = setting(
        (), "TREC, a table, .json, .jsonl or .parquet; may be repeated", metavar="[NAME=]FILE"
    )
    qrels: Path = required("TREC, BEIR's .tsv, .csv, .json, .jsonl or .parquet", metavar="FILE")
    no_positive: Literal["ignore", "zero"] = setting(
        "ignore", "queries without a relevant document: ignore them, or zero: count them as 0, as trec_eval -c does"
    )
    measures: str | None = setting(None, "further measures with commas; mdcr show measures lists them")
    output: Path | None = setting(None, "folder for its page and tables (default: one in runs/reports)")


@dataclass(frozen=True)
class Judge:
    """Settings of ``judge``, beside those of systems and pools."""

    design: Literal["pairs", "queries"] = setting(
        "pairs", "pairs at random, for precision and DCG; or whole queries, for all measures", of=("draw",)
    )
    pairs: Positive = setting(400, "pairs: how many people judge, on average", of=("draw",))
    queries_judged: Positive = setting(40, "queries: how many people judge in full", of=("draw",))
    ranks: Positive = setting(20, "draw pairs from each system's top N, plus every positive", of=("draw",))
    grades: str | None = setting(
        None, "highest label (default: 1), or labels in words, best first: yes,no", of=("draw", "read")
    )
    second: Annotated[float, Meta(ge=0, le=1)] = setting(0.1, "share of the pairs for a second annotator", of=("draw",))
    draw_seed: int = setting(0, "seed; with the same seed, a larger draw contains the smaller one", of=("draw",))
    labels: tuple[Path, ...] = setting((), "labels of people; may be repeated", metavar="FILE", of=("read",))
    machine: Path | None = setting(None, "labels of a model, of all pairs", metavar="FILE", of=("read",))
    extra: Literal["refuse", "ignore"] = setting("refuse", "labels of pairs that were not drawn", of=("read",))
    draw: str | None = setting(None, "name of the draw (default: the newest)", of=("read", "score"))
    measures: str | None = setting(None, "with commas (default: those of the design)", of=("score",))
    output: Path | None = setting(None, "folder for the files (default: runs/reports)", of=("draw", "score"))


@dataclass(frozen=True)
class StudyOptions:
    """Settings of ``study``."""

    recipe: Path | None = setting(None, "a TOML file with its settings, or the name of one of ours")
    corpus: str | None = setting(None, "corpus in place of the recipe's")
    model: str | None = setting(None, "systems in place of the recipe's")
    year: str | None = setting(None, "publication year in place of the recipe's")
    input: Path | None = setting(None, "folder in place of the recipe's")
    set: tuple[str, ...] = setting((), _SET, metavar="NAME=VALUE")
    output: Path | None = setting(None, "folder for its files (default: runs/reports/NAME)")
    list: bool = setting(False, "list what the input folder contains, and stop")


@dataclass(frozen=True)
class Reproduce:
    """Settings of ``reproduce``."""

    input: Path = setting(Path("/data"), "folder with the data: /data/NAME of a command is NAME in it")
