"""The command line: every subcommand and option, and nothing else, so that ``mdcr --help`` is instant."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import pipeline
from pipeline.sources.registry import SOURCES, all_options

_SELECTION = "which pools"


def parser() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Return the parser of ``mdcr``, and those of its commands by name."""
    top = argparse.ArgumentParser(
        prog="mdcr",
        allow_abbrev=False,
        description="How well does an article encoder retrieve, among millions of papers, beside a tuned BM25?",
        epilog="The chain: corpus -> pool -> embed -> index -> search -> score -> report; eval runs what is missing.",
    )
    top.add_argument("--version", action="version", version=f"mdcr {pipeline.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    _fetch(_command(commands, "fetch", "download a release: S2AG or OpenAlex"))
    _corpus(_command(commands, "corpus", "build a corpus from a release"))
    _selection(_command(commands, "pool", "draw queries, candidates and qrels"))
    for name, what in (
        ("embed", "embed the papers of the pools"),
        ("index", "build the indexes of the pools"),
        ("search", "rank the candidates of the pools"),
    ):
        command = _command(commands, name, what)
        _systems(command)
        command.add_argument(
            "--slice",
            metavar="I/N",
            help="make part I (from 0) of N, publish nothing; before: plan; whole: what waits for no parts",
        )
    _selection(_command(commands, "tune", "choose k1 and b of BM25 on validation queries (90 points)"))
    for name, what in (
        ("score", "score the rankings of the pools"),
        ("eval", "run whatever of the chain is missing, and print the table"),
    ):
        command = _command(commands, name, what)
        _scoring(command, required=name == "eval")
        _benchmark(command)
    for name, what in (
        ("submit", "submit what is missing as Slurm jobs"),
        ("collect", "verify and publish what slices made, and submit what they lost"),
    ):
        _batch(_command(commands, name, what))
    _command(commands, "jobs", "show what was submitted: progress, failures")

    report = _command(commands, "report", "write the tables and plots of what was scored")
    report.add_argument("--output", type=Path, help="folder for the files (default: runs/reports)")
    show = _command(commands, "show", "print what there is: scores, corpora, pools, artifacts")
    kinds = "table (default), corpora, corpus, pools, artifacts, vectors, fields or measures"
    show.add_argument("what", nargs="?", default="table", help=kinds)
    show.add_argument("--output", type=Path, help="corpus: folder to write its figures into")
    show.add_argument("--spot", type=int, default=3, help="vectors: papers of each store to encode again (default: 3)")
    show.add_argument("--check", type=Path, metavar="CSV", help="table: exit with 3 if figures differ from this table")
    show.add_argument("--tolerance", type=float, default=0.01, help="difference --check allows (default: 0.01)")
    for command in (report, show):
        _systems(command, required=False)
        _measures(command)
        command.add_argument("--format", default="terminal", help="terminal, markdown, csv or latex")
        command.add_argument("--baseline", help="system to test against (default: bm25:tuned, else bm25)")

    study = _command(commands, "study", "run an experiment: make what it needs, write its tables and figures")
    study.add_argument("name", nargs="?", help="name of the study; none: list them")
    study.add_argument("--recipe", type=Path, help="TOML file with its settings (default: runs/recipes/NAME.toml)")
    study.add_argument("--corpus", help="corpus in place of the recipe's")
    study.add_argument("--model", help="systems in place of the recipe's")
    study.add_argument("--year", type=int, help="publication year in place of the recipe's")
    study.add_argument("--input", type=Path, help="folder in place of the recipe's")
    study.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="another setting's value")
    study.add_argument("--output", type=Path, help="folder for its files (default: runs/reports/NAME)")

    plan = _command(commands, "plan", "estimate time, disk and memory of embedding, from a short probe")
    _systems(plan)
    plan.add_argument("--probe", type=float, default=5.0, metavar="SECONDS", help="of each model (default: 5)")
    models = _command(commands, "models", "list the encoders, and which of them are on this machine")
    about = "list (default); the name of one, for its details; or lock: write all commits to models.lock"
    models.add_argument("action", nargs="?", default="list", help=about)
    _command(commands, "doctor", "report what this machine has, and what is missing")
    return top, commands.choices


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, what: str
) -> argparse.ArgumentParser:
    about = what[0].upper() + what[1:] + "."
    command = commands.add_parser(name, help=what, description=about, allow_abbrev=False)
    common = command.add_argument_group("how it runs (changes no result)")
    common.add_argument("--root", type=Path, default=Path(), help="workspace with corpora/, indexes/ and runs/")
    common.add_argument("--memory", help="memory of a stage, such as 4G (default: half the machine)")
    common.add_argument("--workers", type=int, help="processes or threads (default: the machine's cores)")
    common.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    common.add_argument("--repair", action="store_true", help="verify what is there and rebuild damaged files")
    common.add_argument("--dry-run", action="store_true", help="print what would be made, and make nothing")
    common.add_argument("--json", action="store_true", help="results as JSON on standard output")
    common.add_argument("--quiet", action="store_true", help="no progress and no messages")
    return command


def _fetch(command: argparse.ArgumentParser) -> None:
    command.add_argument("release_of", metavar="WHICH", help="s2ag or openalex")
    command.add_argument("--output", type=Path, help="folder for it (default: corpora/releases/NAME below --root)")
    command.add_argument("--connections", type=int, default=4, help="files fetched at a time (default: 4)")
    command.add_argument("--first", type=int, metavar="N", help="only N files of each dataset, for a trial")
    command.add_argument("--endpoint", help="address of the API or the bucket, for a mirror")
    group = command.add_argument_group("s2ag")
    group.add_argument("--release", default="latest", help="a date such as 2026-09-17 (default: latest)")
    group.add_argument("--api-key-file", type=Path, help="file with the key of the API (default: $S2_API_KEY)")
    group.add_argument("--api-key", help=argparse.SUPPRESS)  # refused without printing it
    group.add_argument(
        "--datasets",
        default="papers,abstracts,citations",
        help="default: papers,abstracts,citations; also embeddings-specter_v2",
    )
    group = command.add_argument_group("openalex")
    group.add_argument("--snapshot", default="jsonl", help="jsonl (default), parquet, or legacy (until 2025)")


def _corpus(command: argparse.ArgumentParser) -> None:
    command.add_argument("--source", required=True, help=", ".join(SOURCES))
    command.add_argument("--input", type=Path, help="folder of the release")
    command.add_argument("--corpus", help="name to give it (default: the source's)")
    command.add_argument("--engine", default="local", help="local (default), or ray: read the parts on a Ray cluster")
    command.add_argument("--ray-address", default="auto", help="cluster of --engine ray (default: auto, else local)")
    group = command.add_argument_group("papers that stand there more than once")
    group.add_argument("--duplicates", default="keep", help="keep (default), drop, or merge with their citations")
    group.add_argument("--duplicates-by", default="doi,title", help="doi, title (and year), or both (default)")
    group = command.add_argument_group("options of some sources")
    for name, found in all_options().items():
        about = {option.help: [source for source, other in found if other.help == option.help] for _, option in found}
        text = "; ".join(f"{', '.join(sources)}: {what}" for what, sources in about.items())
        action = "store" if found[0][1].parse else "store_true"
        group.add_argument("--" + name.replace("_", "-"), action=action, help=text)


def _selection(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group(_SELECTION)
    group.add_argument("--corpus", help="name of the corpus (may be left out where there is only one)")
    group.add_argument("--field", help="one of the 19 fields, several with commas, or all; none: dataset-level pools")
    group.add_argument("--year", type=int, help="publication year of the queries (default: 2019)")
    group.add_argument("--size", help="candidates: 200k, 2M, all; several with commas (default: 200k; by field 100k)")
    group.add_argument("--queries", help="number of queries, or all (default: 3800; by field 200)")
    group.add_argument("--samples", type=int, help="samples of the candidates (default: 3)")
    group.add_argument("--seed", type=int, default=13, help="seed of every draw (default: 13)")
    group.add_argument("--split", default="test", help="test, or validation: other queries, for tuning")
    group.add_argument("--nested", action="store_true", help="smaller pools are subsets of larger ones")
    group.add_argument(
        "--exclude", type=Path, action="append", default=[], metavar="FILE", help="ids that may not be queries"
    )
    rules = command.add_argument_group("rules of the pools (protocols 1 and 2)")
    rules.add_argument("--citation-direction", default="outbound", help="outbound, inbound or total")
    rules.add_argument("--min-citations", type=int, default=3)
    rules.add_argument("--min-abstract-chars", type=int, default=30)
    rules.add_argument("--positives", default="corpus", help="corpus (every cited paper with a title) or prefiltered")
    rules.add_argument("--keep-same-title", action="store_true", help="keep candidates with the query's own title")


def _systems(command: argparse.ArgumentParser, *, required: bool = True) -> None:
    group = command.add_argument_group("which systems")
    group.add_argument(
        "--model",
        required=required,
        help="systems with commas: bm25 (tuned, where mdcr tune was run), bm25:tuned, bm25:k1=1.2,b=0.75, scincl, lsa, "
        "mean(a,b), rrf(bm25,lsa), wsum(bm25,lsa), hf:org/name, a folder, vectors:FILE (vectors made elsewhere)",
    )
    group.add_argument("--depth", type=int, default=500, help="ranks kept of each query (default: 500)")
    group.add_argument("--precision", help="compute precision of encoders: fp32, fp16 or bf16 (default: the model's)")
    group.add_argument(
        "--engine",
        default="auto",
        help="dense search: auto, exact (CPU or GPU) or faiss, whose rankings are the same; beside exact, "
        "approximate: ivf, hnsw, on a GPU ivf-gpu or cagra, and with settings ivf:cells=2,probes=0.1 or "
        "hnsw:links=16,build=200,search=4; ray: embed and search on a Ray cluster, with the same result",
    )
    group.add_argument("--ray-address", default="auto", help="cluster of --engine ray (default: auto, else local)")
    group.add_argument(
        "--bm25-engine", default="postings", help="BM25: postings (default) or lucene; the ranking is the same"
    )
    _selection(command)


def _batch(command: argparse.ArgumentParser) -> None:
    command.add_argument("--stage", required=True, help="embed, index, search, score, or eval for the whole chain")
    group = command.add_argument_group("what a slice asks for (more: table [slurm] of the recipe, docs/clusters.md)")
    group.add_argument("--nodes", type=int, help="slices, one task each (default: 1)")
    group.add_argument("--gpus", type=int, help="GPUs of one slice (default: 0)")
    group.add_argument("--partition", help="Slurm's partition")
    group.add_argument("--time", help="limit of one slice, such as 04:00:00")
    group.add_argument("--recipe", type=Path, help="TOML file with a table [slurm]")
    _scoring(command)


def _benchmark(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("a benchmark in the MDCR layout, in place of pools (docs/mdcr.md)")
    group.add_argument("--benchmark", type=Path, help="folder with mdcr_SPLIT.json and mdcr_SPLIT_data.jsonl")
    group.add_argument("--scores", type=Path, help="score this score file instead of systems; needs no texts")
    group.add_argument("--export-scores", type=Path, metavar="FILE", help="write the scores of the one system")
    group.add_argument("--bm25-index", help="BM25 counts the documents of the field's corpus (default) or each query's")


def _scoring(command: argparse.ArgumentParser, *, required: bool = True) -> None:
    _systems(command, required=required)
    _measures(command)
    command.add_argument("--measure-engine", default="numpy", help="numpy (default) or ranx; the scores are the same")


def _measures(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--measures",
        help="further measures with commas, such as recall@50,f1; mdcr show measures lists them",
    )
