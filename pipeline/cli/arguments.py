"""The command line: all subcommands and options. It imports little, so that ``mdcr --help`` is instant."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pipeline
from pipeline.cli.spelling import Help, Parser
from pipeline.corpus.poolconfig import SETTINGS
from pipeline.sources.registry import SOURCES, all_options

_FORMATS = "terminal (default), markdown, csv or latex"
_PRECISION = "compute precision of encoders: fp32, fp16 or bf16 (default: the model's)"
_FILES = "with commas: page, markdown, csv, latex, figures (default: all)"

_MARGIN = "points: test whether systems are equivalent, within this difference of a measure in percent"
_RESAMPLE = "what the bootstrap resamples: queries (default), papers (the samples of a pool), or both"
_OF_POOLS = (
    "drawn pools that count, by settings such as queries=100,year=2019, or all; may be repeated (default: one suite)"
)
OF_AUDIT = {
    "metric": "the metric, such as ndcg@10 (default: the tool's main one)",
    "qrels": "judgements of the runs (default: those that lie beside them)",
    "systems": "systems that count, with commas and * for any text (default: all)",
    "items": "queries or tasks that count (default: all)",
    "coverage": "least share of the items that a system must have (default: 0)",
    "family": "tasks that are resampled together: auto, none, type or domain (default: auto)",
    "missing": "items that a system lacks: complete leaves them out, impute fits them (default: complete)",
    "correction": "holm, or bh for exploring (default: holm)",
    "plan": "difference in points that a planned evaluation must show",
}
"""Settings of the recipe ``audit`` that are options."""

_OF_BENCHMARKS = "benchmark that counts, by its name, with * for any text; may be repeated (default: all)"
_CORPUS = "name of the corpus (default: the only one)"

RUNNING: Mapping[str, dict[str, Any]] = {
    "memory": {"action": "store", "help": "memory of a stage, such as 4G (default: half the machine)"},
    "workers": {"action": "store", "type": int, "help": "processes or threads (default: the machine's cores)"},
    "device": {"action": "store", "default": "auto", "help": "auto, cpu, cuda or cuda:N"},
    "repair": {"help": "verify what is there and rebuild damaged files"},
    "dry-run": {"help": "print what would be made, and make nothing"},
    "verbose": {"help": "print the time of each step, and rates"},
    "json": {"help": "print results as JSON"},
    "quiet": {"help": "print only errors and what is left out"},
}
"""Options that change no result. A command names those that it takes; every command takes --root and --quiet."""

CLUSTER: Mapping[str, dict[str, Any]] = {
    "on": {"help": "slurm: jobs of Slurm make the units of work (default: this machine)"},
    "nodes": {"type": int, "help": "jobs that share the units (default: 1)"},
    "gpus": {"type": int, "help": "GPUs of a job (default: 0)"},
    "partition": {"help": "Slurm's partition"},
    "time": {"help": "time limit of a job, such as 04:00:00"},
    "slurm": {"type": Path, "metavar": "FILE", "help": "TOML file with tables [slurm] and [driver] (docs/clusters.md)"},
}
"""Options of commands that can run on Slurm; they change no result."""

_ALL = "memory workers device repair dry-run verbose json"


def parser() -> tuple[Parser, Mapping[str, Parser]]:
    """Return the parser of ``mdcr``, and those of its commands by name."""
    top = Parser(
        prog="mdcr",
        allow_abbrev=False,
        description="Evaluate scientific-article encoders on citation recommendation, on pools of up to millions.",
        epilog="The chain: corpus -> pool -> embed -> index -> search -> score -> report; eval makes what is missing.",
    )
    top.add_argument("--version", action="version", version=f"mdcr {pipeline.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    _fetch_options(
        _command(commands, "fetch", "download a release: S2AG, OpenAlex, MTEB or SciRepEval", "dry-run verbose json")
    )
    on_cpu = "memory workers repair dry-run verbose json"
    _corpus_options(_command(commands, "corpus", "build a corpus from a release", on_cpu))
    pool = _command(commands, "pool", "draw queries, candidates and qrels", on_cpu)
    _pool_options(pool)
    _strict_option(pool)
    for name, summary in (
        ("embed", "embed the papers of the pools"),
        ("index", "build the indexes of the pools"),
        ("search", "rank the candidates of the pools"),
    ):
        command = _command(commands, name, summary)
        _system_options(command, stage=name)
        _strict_option(command)
        command.add_argument(
            "--slice",
            metavar="I/N",
            help="make slice I of N (from 0) without publishing; plan: list the units first",
        )
    tune = _command(commands, "tune", "choose k1 and b of BM25 on validation queries (90 points)", on_cpu)
    _pool_options(tune, drawn=False)
    _strict_option(tune)
    for name, summary in (
        ("score", "score the rankings of the pools"),
        ("eval", "make whatever is missing, and print the table"),
    ):
        command = _command(commands, name, summary)
        help_text = "run of another tool: TREC, .json or .parquet (docs/interchange.md); may be repeated"
        command.add_argument("--run", action="append", default=[], metavar="[NAME=]FILE", help=help_text)
        _scoring_options(command, required=False)
        _display_options(command, _FORMATS)
        _benchmark_options(command)
    submit = _command(commands, "submit", "run a command as a job of Slurm; takes its options too", "dry-run")
    help_text = "corpus, embed, index, search, score, eval, study, benchmark or train"
    submit.add_word("stage", help_text, required=True)
    submit.passes = True
    _command(commands, "jobs", "show jobs of Slurm: state, units done, last line of the log", "json")

    _export_options(_command(commands, "export", "write pools, rankings or scores for other tools"))
    report = _command(commands, "report", "write tables and plots of all scores", "dry-run json")
    report.add_argument("--output", type=Path, help="folder for the files (default: runs/reports)")
    reading = "memory workers device json"
    show = _command(commands, "show", "print scores, corpora, pools or artifacts", reading)
    help_text = (
        "last (the newest table; default), table (default with options), corpora, corpus, pools, artifacts, vectors, "
    )
    show.add_word("what", help_text + "fields or measures")
    show.add_argument("--check", type=Path, metavar="CSV", help="table: exit with 3 if figures differ from this table")
    show.add_argument("--tolerance", type=float, help="difference --check allows (default: 0.01)")
    for command, formats in ((report, _FILES), (show, _FORMATS)):
        _choice_options(command)
        _display_options(command, formats)

    compare = _command(commands, "compare", "compare systems on the same pools, and show where two differ", "json")
    compare.add_argument(
        "systems", nargs="*", metavar="SYSTEM", help="names or labels of rows of mdcr show; of more than two, all pairs"
    )
    compare.add_argument("--model", help="the systems with commas, as make passes them")
    compare.add_argument("--margin", type=float, help=_MARGIN)
    compare.add_argument("--resample", help=_RESAMPLE)
    compare.add_argument("--most", type=int, default=10, metavar="N", help="queries that differ most (default: 10)")
    compare.add_argument("--output", type=Path, help="folder for its page (default: one in runs/reports)")
    _choice_options(compare, systems=False)

    evaluate = _command(commands, "evaluate", "score runs of any tool against qrels: needs no corpus", "memory json")
    help_text = "TREC, a table, .json, .jsonl or .parquet; may be repeated"
    evaluate.add_argument("--run", action="append", default=[], metavar="[NAME=]FILE", help=help_text)
    help_text = "TREC, BEIR's .tsv, .csv, .json, .jsonl or .parquet"
    evaluate.add_argument("--qrels", type=Path, required=True, metavar="FILE", help=help_text)
    help_text = "queries that a measure cannot rate: ignore (default), or zero as trec_eval"
    evaluate.add_argument("--no-positive", default="ignore", help=help_text)
    evaluate.add_argument("--measures", help="further measures with commas; mdcr show measures lists them")
    evaluate.add_argument("--output", type=Path, help="folder for its page and tables (default: one in runs/reports)")
    _display_options(evaluate, _FORMATS)

    study = _command(commands, "study", "run an experiment and write its tables and figures")
    study.add_word("study", "name of the study (default: list them)")
    study.add_argument("--recipe", type=Path, help="a TOML file with its settings, or the name of one of ours")
    study.add_argument("--corpus", help="corpus in place of the recipe's")
    study.add_argument("--model", help="systems in place of the recipe's")
    study.add_argument("--year", help="publication year in place of the recipe's")
    study.add_argument("--input", type=Path, help="folder in place of the recipe's")
    help_text = "other settings; several with ;"
    study.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=help_text)
    study.add_argument("--output", type=Path, help="folder for its files (default: runs/reports/NAME)")
    study.add_argument("--list", action="store_true", help="list what the input folder contains, and stop")

    _triplet_options(_command(commands, "triplets", "draw training triplets from the citations of a corpus"))
    train = _command(commands, "train", "train an encoder by a recipe; prints its folder, which --model takes")
    train.add_word("recipe", "a TOML file with its settings, or the name of one of ours", required=True)
    train.add_argument("--corpus", help="corpus in place of the recipe's")
    train.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=help_text)

    text = "write the leaderboard of all that was scored, with intervals, which systems differ, and costs"
    board = _command(commands, "leaderboard", text, "memory workers json")
    help_text = "submission to verify and count, or a folder of them; may be repeated"
    board.add_argument("--add", type=Path, action="append", default=[], metavar="FILE", help=help_text)
    card = _command(
        commands, "card", "write the card of one encoder: its results against BM25, recipe and costs", "json"
    )
    card.add_word("model", "the encoder", required=True)
    card.add_argument(
        "--push", metavar="CARD", help="put its results into the model card of a folder or hub repository"
    )
    pack = _command(commands, "submission", "pack the runs and scores of a system for the leaderboard of others", "")
    pack.add_word("model", "the system", required=True)
    for command in (board, card, pack):
        for name, meaning in (("pools", _OF_POOLS), ("benchmarks", _OF_BENCHMARKS)):
            command.add_argument(f"--{name}", action="append", default=[], metavar="CHOICE", help=meaning)
        command.add_argument("--output", type=Path, help="folder for its files; submission: the file")

    text = "put error bars on results of any tool: intervals, ranks, which systems differ, what would settle them"
    audit = _command(commands, "audit", text, "json")
    audit.add_argument("paths", nargs="*", metavar="RESULTS", help="files and folders of results (docs/audit.md)")
    audit.add_argument("--results", help="the same, as an option, with commas")
    for name, meaning in OF_AUDIT.items():
        kind = float if name in ("coverage", "plan") else str
        audit.add_argument(f"--{name}", type=kind, help=meaning, metavar=name.upper())
    audit.add_argument("--lower-is-better", action="store_true", default=None, help="of a metric that is not ours")
    audit.add_argument("--output", type=Path, help="folder for its files (default: runs/reports/audit)")

    help_text = "print what eval would make with the same options, and time, disk and memory of the embedding"
    plan = _command(commands, "plan", help_text, reading)
    _scoring_options(plan)
    plan.add_argument("--probe", type=float, default=5.0, metavar="SECONDS", help="of each model (default: 5)")
    models = _command(commands, "models", "list the encoders, and which of them are on this machine", "json")
    help_text = "list (default), or the name of one, for its recipe and its sources"
    models.add_word("what", help_text)
    help_text = "run the whole pipeline on the papers that come with it (medicine, psychology)"
    _command(commands, "demo", help_text, "memory workers device verbose")
    _command(commands, "doctor", "report what this machine has, and what is missing", "json")
    _command(commands, "open", "open the newest page in a browser", "")
    gc = _command(commands, "gc", "list files that no named corpus needs; remove them with --delete", "json")
    gc.add_argument("--delete", action="store_true", help="remove it (default: list it)")
    for name in ("corpus", "embed", "index", "search", "score", "eval", "study", "submit"):
        group = commands.choices[name].add_argument_group("on a cluster (changes no result)")
        for option, keywords in CLUSTER.items():
            if (name, option) != ("submit", "on"):
                group.add_argument(f"--{option}", **keywords)
    return top, commands.choices


def _command(commands: argparse._SubParsersAction[Parser], name: str, summary: str, options: str = _ALL) -> Parser:
    description = summary[0].upper() + summary[1:] + "."
    command = commands.add_parser(name, help=summary, description=description, allow_abbrev=False, formatter_class=Help)
    common = command.add_argument_group("how it runs (changes no result)")
    common.add_argument("--root", type=Path, default=Path(), help="workspace with corpora/, indexes/ and runs/")
    for option in (name for name in RUNNING if name in [*options.split(), "quiet"]):
        common.add_argument(f"--{option}", **{"action": "store_true", **RUNNING[option]})
    return command


def _fetch_options(command: Parser) -> None:
    command.add_word("source", "s2ag, openalex, mteb or scirepeval", required=True)
    command.add_argument("--output", type=Path, help="folder for it (default: corpora/releases/NAME below --root)")
    command.add_argument("--connections", type=int, default=4, help="files fetched at a time (default: 4)")
    command.add_argument("--first", type=int, metavar="N", help="only N files of each dataset, for a trial")
    command.add_argument("--endpoint", help="address of the API or the bucket, for a mirror")
    group = command.add_argument_group("s2ag")
    group.add_argument("--release", help="a date such as 2026-09-17 (default: latest)")
    group.add_argument("--api-key-file", type=Path, help="file with the key of the API (default: $S2_API_KEY)")
    group.add_argument("--api-key", help=argparse.SUPPRESS)  # refused without printing it
    group.add_argument("--datasets", help="default: papers,abstracts,citations; of scirepeval: all configurations")
    group = command.add_argument_group("openalex")
    group.add_argument("--snapshot", help="jsonl (default), parquet, or legacy (until 2025)")
    group = command.add_argument_group("mteb")
    group.add_argument("--task", help="tasks with commas, such as SCIDOCS,SciFact, or the list scientific")
    group = command.add_argument_group("scirepeval")
    group.add_argument("--train", action="store_const", const=True, help="training splits too, for leak checks")


def _triplet_options(command: Parser) -> None:
    command.add_word("triplets", "specter, specter2, scincl, mined or pairs", required=True)
    command.add_argument("--corpus", help=_CORPUS)
    command.add_argument("--until", type=int, metavar="YEAR", help="last year of papers and citations (default: any)")
    command.add_argument("--field", help="field of the queries (default: any)")
    command.add_argument("--balanced", action="store_true", help="as many queries of one field as of another")
    command.add_argument("--queries", help="number of queries, or all (default)")
    command.add_argument("--seed", type=int, help="seed of every draw (default: 13)")
    help_text = "FILE with ids of papers that are in no triplet; may be repeated"
    command.add_argument("--exclude", action="append", default=[], metavar="FILE", help=help_text)
    command.add_argument("--from", metavar="SYSTEM", help="mined: the system that ranks (default: bm25)")
    help_text = "first and last rank of hard negatives: 10,100 (mined), 3999,4000 in the citation embedding (scincl)"
    command.add_argument("--ranks", help=help_text)
    for kind, text in (
        ("easy", "negatives at random"),
        ("same-field", "negatives at random of its field"),
        ("other-field", "negatives at random of other fields"),
        ("hard", "negatives that a cited paper cites, or from the ranking"),
        ("pair", "positives without a negative"),
    ):
        command.add_argument(f"--{kind}", type=int, metavar="N", help=f"{text}, of each query (default: the recipe's)")


def _corpus_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--source", required=True, help=", ".join(SOURCES))
    command.add_argument("--input", type=Path, help="folder of the release; jsonl, parquet: or one file")
    command.add_argument("--corpus", help="name to give it (default: the source's or the task's)")
    command.add_argument("--engine", default="local", help="local (default), or ray: read the parts on a Ray cluster")
    command.add_argument("--ray-address", help="cluster of --engine ray (default: auto, else local)")
    group = command.add_argument_group("duplicate papers")
    group.add_argument("--duplicates", default="keep", help="keep (default), drop, or merge with their citations")
    group.add_argument("--duplicates-by", help="doi, title (and year), or both (default)")
    group = command.add_argument_group("options of sources")
    for name, uses in all_options().items():
        sources_of = {option.help: [source for source, same in uses if same.help == option.help] for _, option in uses}
        shared = len(uses) == len(SOURCES)
        text = "; ".join(what if shared else f"{', '.join(sources)}: {what}" for what, sources in sources_of.items())
        action = "store" if uses[0][1].parse else "store_true"
        group.add_argument("--" + name.replace("_", "-"), action=action, help=text)


def _strict_option(command: argparse.ArgumentParser) -> None:
    help_text = "fail if a field has too few papers, or wsum no validation queries, instead of leaving it out"
    command.add_argument("--strict", action="store_true", help=help_text)


def _add_pools(group: argparse._ActionsContainer, names: Iterable[str], *, defaults: bool = True) -> None:
    """Add options of pool settings; ``defaults``: their help states the default, which needs no option of its own."""
    for setting in (SETTINGS[name] for name in names):
        flag = setting.kind is bool
        text = f"{setting.help} (default: {setting.usual})" if defaults and not flag else setting.flag or setting.help
        keywords: dict[str, Any] = {"action": "store_const", "const": not setting.default} if flag else {}
        if setting.kind == tuple[Path, ...]:
            keywords = {"action": "append", "metavar": "FILE"}
        group.add_argument(f"--{setting.option}", dest=setting.name, help=text, **keywords)
        if flag and not defaults:
            only = {"action": "store_const", "const": setting.default, "help": f"only pools without --{setting.option}"}
            group.add_argument(f"--no-{setting.option}", dest=setting.name, **only)


def _pool_options(command: argparse.ArgumentParser, *, drawn: bool = True) -> None:
    """Add the options that select pools; a tuning sets samples and split itself, hence not ``drawn``."""
    names = [name for name in SETTINGS if drawn or name not in ("samples", "split")]
    group = command.add_argument_group("which pools")
    group.add_argument("--corpus", help=_CORPUS)
    _add_pools(group, [name for name in names if not SETTINGS[name].rule])
    rules = command.add_argument_group("rules of the pools (protocols 1 and 2)")
    _add_pools(rules, [name for name in names if SETTINGS[name].rule])


def _system_options(command: argparse.ArgumentParser, *, required: bool = True, stage: str = "") -> None:
    """Add the options that select systems and pools; ``stage`` ``embed`` or ``index`` needs fewer."""
    group = command.add_argument_group("which systems")
    group.add_argument(
        "--model",
        required=required,
        help="systems with commas: bm25 (tuned, where mdcr tune was run), bm25:tuned, bm25:k1=1.2,b=0.75, scincl, lsa, "
        "mean(a,b), rrf(bm25,lsa), wsum(bm25,lsa), rerank(bm25,cross:org/name,100) or maxsim: likewise, hf:org/name, "
        "a folder, vectors:FILE (vectors made elsewhere), run:FILE (a run of another tool); "
        "with a label for the tables: mine=/a/folder",
    )
    group.add_argument("--allow-unknown", action="store_true", help="run:FILE: leave out what a pool does not have")
    if stage not in ("embed", "index"):
        group.add_argument("--depth", type=int, help="ranks kept of each query (default: 500)")
    group.add_argument("--precision", help=_PRECISION)
    group.add_argument(
        "--engine",
        default="auto",
        help="dense search. Exact, with one ranking: auto, exact (CPU or GPU), faiss, or ray (a Ray cluster). "
        "Approximate, scored beside exact: ivf or hnsw, on a GPU ivf-gpu or cagra, with settings "
        "ivf:cells=2,probes=0.1 or hnsw:links=16,build=200,search=4",
    )
    group.add_argument("--ray-address", help="cluster of --engine ray (default: auto, else local)")
    if stage != "embed":
        help_text = "BM25: postings (default) or lucene; the ranking is the same"
        group.add_argument("--bm25-engine", default="postings", help=help_text)
    _pool_options(command)


def _benchmark_options(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("a benchmark in the MDCR layout, in place of pools (docs/mdcr.md)")
    group.add_argument("--benchmark", type=Path, help="folder with mdcr_SPLIT.json and mdcr_SPLIT_data.jsonl")
    group.add_argument("--scores", type=Path, help="score this score file instead of systems; needs no texts")
    group.add_argument("--export-scores", type=Path, metavar="FILE", help="write the scores of the one system")
    group.add_argument("--bm25-index", help="BM25 counts the documents of a field (default), corpus or query")


def _export_options(command: Parser) -> None:
    command.add_word("what", "pool, run (rankings of --model), scores, vectors (likewise) or benchmark", required=True)
    help_text = "pool: beir (default), mteb, trec or parquet; benchmark: beir (default) or mteb; "
    help_text += "run: trec (default), trec.gz, json, json.gz or parquet; "
    command.add_argument(
        "--format", help=help_text + "scores: csv (default), csv.gz, parquet or mteb; vectors: npy (default) or parquet"
    )
    command.add_argument("--output", type=Path, help="folder for the files (default: runs/exports)")
    command.add_argument("--benchmark", type=Path, help="benchmark: its folder in the MDCR layout (docs/mdcr.md)")
    _system_options(command, required=False)
    _strict_option(command)


def _scoring_options(command: argparse.ArgumentParser, *, required: bool = True) -> None:
    _system_options(command, required=required)
    _strict_option(command)
    help_text = "further measures with commas, such as recall@50,f1; mdcr show measures lists them"
    command.add_argument("--measures", help=help_text)
    command.add_argument(
        "--missing-positives",
        default="ignore",
        help="positives that the collection lacks: ignore (default), or count them in denominators, as trec_eval does",
    )
    command.add_argument("--measure-engine", default="numpy", help="numpy (default) or ranx; the scores are the same")


def _choice_options(command: argparse.ArgumentParser, *, systems: bool = True) -> None:
    """Add the options that choose stored scores, named as those of ``eval``; none restricts anything by default."""
    group = command.add_argument_group("which scores (default: all)")
    if systems:
        group.add_argument(
            "--model", help="systems with commas, in the order of the rows; bm25 is tuned if its pool has a tuning"
        )
    group.add_argument("--depth", type=int, help="ranks kept of each query")
    group.add_argument("--precision", help="compute precision of encoders: fp32, fp16 or bf16")
    group.add_argument("--engine", help="exact, or an index beside it, such as ivf or hnsw:links=16")
    group.add_argument("--measures", help="with commas, in the order of the columns (default: map,ndcg,recall@30)")
    group.add_argument("--missing-positives", help="judged positives that the collection lacks: ignore or count")
    group.add_argument("--corpus", help=_CORPUS)
    _add_pools(group, [name for name in SETTINGS if name != "validation_queries"], defaults=False)  # of no test pool


def _display_options(command: argparse.ArgumentParser, formats: str) -> None:
    group = command.add_argument_group("how scores are shown")
    group.add_argument("--format", help=formats)
    group.add_argument("--baseline", help="row to test the others against, by name or label (default: bm25)")
    group.add_argument("--margin", type=float, help=_MARGIN)
    group.add_argument("--resample", help=_RESAMPLE)
    group.add_argument("--sort", metavar="MEASURE", help="rows by this measure, best first (default: as --model)")
