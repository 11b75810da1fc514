"""The command line: all subcommands and which settings each takes; their options derive from the declarations.

It imports little, so that ``mdcr --help`` is instant.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING
from typing import Any, Literal, NamedTuple

from pipeline.cli.settings import (
    DISPLAY,
    RUNNING,
    SYSTEMS,
    VARIOUS,
    Evaluate,
    Export,
    Fetch,
    Judge,
    NewCorpus,
    Reproduce,
    StudyOptions,
)
from pipeline.cluster.settings import REQUESTS
from pipeline.core.settings import Setting, choices_text, settings_of
from pipeline.corpus.poolconfig import RULES, SETTINGS
from pipeline.sources.registry import all_options
from pipeline.stages.settings import CHOICE, RANKED
from pipeline.studies.audit import recipe as audit
from pipeline.train.recipe import DRAW

Settings = Mapping[str, Setting]


_ALL = "memory workers device repair dry_run json"
_ON_CPU = "memory workers repair dry_run json"


def word(name: str, kind: Any, help_text: str = "", *, required: bool = True, metavar: str = "") -> Setting:
    """Return a setting that is also the first word of a command; its help is its choices, unless it has another."""
    help_text = help_text or choices_text(kind)
    return Setting(name, (name,), kind, help_text, MISSING if required else None, name, metavar)


class Group(NamedTuple):
    """Settings of a command, under a title of its help.

    Attributes:
        chooses: whether they choose what exists: none restricts anything by default.
        unset: whether one that is not given stays None, so that the protocol's default depends on the others.
    """

    title: str
    settings: Settings
    chooses: bool = False
    unset: bool = False


class Command(NamedTuple):
    """A subcommand.

    Attributes:
        summary: its help.
        run: ``module:function`` below ``pipeline.cli``.
        groups: what it takes, beside what changes no result.
        running: those of :class:`Running` that it takes, beside ``--root`` and ``--quiet``.
        word: its first word.
        cluster: whether it can run on Slurm.
        passes: whether it leaves other words to the command that its first word names.
        details: ``module:function`` of what its help adds about the first word (names and their texts).
    """

    summary: str
    run: str
    groups: tuple[Group, ...] = ()
    running: str = _ALL
    word: Setting | None = None
    cluster: bool = False
    passes: bool = False
    details: str = ""


def some(settings: Settings, names: str = "", *, but: str = "", **changes: Any) -> dict[str, Setting]:
    """Return some settings by name, or all but some, with changed attributes."""
    chosen = names.split() or [name for name in settings if name not in but.split()]
    return {name: dataclasses.replace(settings[name], **changes) for name in chosen}


def _own(settings: Settings) -> Group:
    return Group("options", settings)


def _pools(*, but: str = "") -> tuple[Group, ...]:
    """Return the settings that select pools."""
    which = some(CHOICE, "corpus") | some(SETTINGS, but=" ".join([*RULES, but]))
    return Group("which pools", which, unset=True), Group(
        "rules of the pools (protocols 1 and 2)", some(SETTINGS, " ".join(RULES)), unset=True
    )


def _systems(
    ranked: str = "depth engine bm25_engine", *, required: bool = False, of: tuple[str, ...] = ()
) -> tuple[Group, ...]:
    """Return the settings that select systems and pools; ``ranked`` are those of :class:`Ranked`, of some words."""
    which = some(SYSTEMS, "model", default=MISSING if required else None)
    which |= some(RANKED, f"allow_unknown {ranked}", of=of)
    which |= some(SYSTEMS, "precision ray_address", of=of)
    which |= some(RANKED, "depth") if "depth" in which else {}
    return Group("which systems", which, unset=True), *_pools()


_STRICT = _own(some(VARIOUS, "strict"))
_SCORED = (*_systems(" ".join(name for name in RANKED if name != "allow_unknown")), _STRICT)
_SHOWN = Group("how scores are shown", some(DISPLAY, of=("last", "table")))
_OF_CHOICE = (
    some(CHOICE, but="corpus", of=("table",))
    | some(CHOICE, "corpus", of=("table", "pools", "corpora", "corpus"))
    | {
        name: dataclasses.replace(
            known, help=known.help.partition(" (default")[0], default=known.default if known.is_flag else None
        )
        for name, known in some(SETTINGS, but="validation_queries", of=("table", "pools")).items()  # of no test pool
    }
)
_CHOSEN = Group("which scores (default: all)", _OF_CHOICE, chooses=True, unset=True)
_FILES = dataclasses.replace(DISPLAY["format"], kind=str, help="page, markdown, csv, latex, figures (default: all)")
_COUNTED = _own(some(VARIOUS, "benchmarks measure output"))
_EVAL = (_own(some(SYSTEMS, "run")), *_SCORED, _SHOWN)

_Paper = Literal["mdcr", "scirepeval", "scirepeval2022", "neighbours", "csfcube"]

COMMANDS: Mapping[str, Command] = {
    "fetch": Command(
        "download a release of Semantic Scholar",
        "fetch:fetch",
        (_own(settings_of(Fetch)),),
        "dry_run json",
        word("source", Literal["s2ag"]),
    ),
    "corpus": Command(
        "build a corpus from a release",
        "commands:corpus",
        (
            _own(settings_of(NewCorpus) | some(SYSTEMS, "ray_address")),
            Group("options of sources", all_options(), unset=True),
        ),
        _ON_CPU,
        cluster=True,
    ),
    "pool": Command("draw queries, candidates and qrels", "commands:pool", (*_pools(), _STRICT), _ON_CPU),
    "embed": Command(
        "embed the papers of the pools",
        "commands:chain",
        (*_systems("engine", required=True), _STRICT),
        cluster=True,
    ),
    "index": Command(
        "build the indexes of the pools",
        "commands:chain",
        (*_systems("engine bm25_engine", required=True), _STRICT),
        cluster=True,
    ),
    "search": Command(
        "rank the candidates of the pools", "commands:chain", (*_systems(required=True), _STRICT), cluster=True
    ),
    "tune": Command(
        "choose k1 and b of BM25 on validation queries (90 points)",
        "commands:tune",
        (*_pools(but="split"), _STRICT),  # a tuning sets it itself
        _ON_CPU,
    ),
    "score": Command("score the rankings of the pools", "commands:score", _EVAL, cluster=True),
    "eval": Command("make whatever is missing, and print the table", "commands:score", _EVAL, cluster=True),
    "submit": Command(
        "run a command as a job of Slurm; takes its options too",
        "batch:submit",
        running="dry_run",
        word=word(
            "stage",
            Literal["corpus", "embed", "index", "search", "score", "eval", "study", "benchmark", "train"],
        ),
        cluster=True,
        passes=True,
    ),
    "jobs": Command("show jobs of Slurm: state, units done, last line of the log", "batch:jobs", running="json"),
    "export": Command(
        "write pools, rankings or scores for other tools",
        "export:export",
        (_own(settings_of(Export)), *_systems(of=("pool", "run", "vectors")), _STRICT),
        word=word(
            "what",
            Literal["pool", "run", "scores", "vectors"],
            "pool, run (rankings of --model), scores or vectors (likewise)",
        ),
    ),
    "report": Command(
        "write tables and plots of all scores",
        "results:write_report",
        (_own(some(VARIOUS, "output")), _CHOSEN, Group("how scores are shown", DISPLAY | {"format": _FILES})),
        "dry_run json",
    ),
    "show": Command(
        "print scores, corpora, pools or artifacts",
        "show:show",
        (_CHOSEN, _SHOWN),
        "json",
        word(
            "what",
            Literal["last", "table", "corpora", "corpus", "pools", "artifacts", "measures"],
            "last (the newest table; default), table (default with options), corpora, corpus, pools, artifacts "
            "or measures",
            required=False,
        ),
    ),
    "compare": Command(
        "compare systems on the same pools, and show where two differ",
        "results:compare",
        (
            _own(some(DISPLAY, "resample") | some(VARIOUS, "most output")),
            _CHOSEN._replace(settings=some(_OF_CHOICE, but="systems")),
            _own({"model": dataclasses.replace(SYSTEMS["model"], help="the systems with commas, as make passes them")}),
        ),
        "json",
        word(
            "compared",
            tuple[str, ...],
            "systems to compare, as mdcr show prints them; three or more: all pairs",
            required=False,
            metavar="SYSTEM",
        ),
    ),
    "evaluate": Command(
        "score runs of any tool against qrels: needs no corpus",
        "results:evaluate",
        (_own(settings_of(Evaluate)), _SHOWN),
        "memory json",
    ),
    "judge": Command(
        "draw query-paper pairs for human judgement, and estimate scores from the labels",
        "judge:judge",
        (_own(settings_of(Judge)), *_systems(of=("draw", "score")), _STRICT),
        word=word("step", Literal["draw", "read", "score"], "draw (pairs for annotators), read (labels) or score"),
    ),
    "study": Command(
        "run an experiment and write its tables and figures",
        "study:study",
        (_own(settings_of(StudyOptions)),),
        word=word("study", str, "name of the study (default: list them)", required=False),
        cluster=True,
        details="study:details",
    ),
    "triplets": Command(
        "draw training triplets from the citations of a corpus",
        "train:triplets",
        (Group("options", some(CHOICE, "corpus") | DRAW, unset=True),),
        word=word("triplets", str, "specter, specter2 or mined"),
    ),
    "train": Command(
        "train an encoder by a recipe; prints its folder, which --model takes",
        "train:train",
        (_own(some(VARIOUS, "corpus set")),),
        word=word("recipe", str, "a TOML file with its settings, or the name of one of ours"),
        details="train:details",
    ),
    "leaderboard": Command(
        "rank everything scored so far, with intervals, significance groups and costs",
        "study:leaderboard",
        (_own(some(VARIOUS, "add training")), _COUNTED),
        "memory workers json",
    ),
    "card": Command(
        "write the card of one encoder: results against BM25, recipe and costs",
        "study:card",
        (_COUNTED,),
        "json",
        word("model", str, "the encoder"),
    ),
    "audit": Command(
        "add intervals, ranks and tests to results of any tool, and print how many more items would separate systems",
        "study:audit",
        (_own(some(settings_of(audit.Recipe), but="seed") | some(VARIOUS, "output")),),
        "memory json",
        word(
            "paths", tuple[str, ...], "files and folders of results (docs/audit.md)", required=False, metavar="RESULTS"
        ),
    ),
    "submission": Command(
        "pack the runs and scores of a system for the leaderboard of others",
        "study:submission",
        (_COUNTED,),
        "",
        word("model", str, "the system"),
    ),
    "papers": Command(
        "list the tables of the five papers, and the command that makes each",
        "papers:papers",
        (_own(some(DISPLAY, "format")),),
        "json",
        word("paper", _Paper, required=False),
    ),
    "reproduce": Command(
        "run every command of a paper for which the data are present; list what the rest need",
        "papers:reproduce",
        (_own(settings_of(Reproduce)),),
        "memory workers device dry_run",
        word("paper", _Paper),
    ),
    "models": Command(
        "list the encoders, and which of them are on this machine",
        "encoders:models",
        running="json",
        word=word("what", str, "list (default), or the name of one, for its recipe and its sources", required=False),
    ),
    "demo": Command(
        "run the whole pipeline on the papers it brings (medicine, psychology)",
        "demo:demo",
        running="memory workers device",
    ),
    "doctor": Command("report what this machine has, and what is missing", "doctor:doctor", running="json"),
    "gc": Command(
        "list files that no named corpus needs; remove them with --delete",
        "gc:gc",
        (_own(some(VARIOUS, "delete")),),
        "json",
    ),
}


def function_of(place: str) -> Callable[..., Any]:
    """Return the function at ``module:function`` below ``pipeline.cli``; its module is imported when it is called."""
    module, _, name = place.partition(":")
    return lambda *given: getattr(importlib.import_module(f"pipeline.cli.{module}"), name)(*given)


def running(command: str, options: argparse.Namespace) -> list[str]:
    """Return the workspace and the limits among the options as words of another command, those that it takes."""
    takes = some(RUNNING, f"root {COMMANDS[command].running}")
    typed = {name: getattr(options, name) for name in ("root", "memory", "workers", "device") if name in takes}
    return [f"--{name}={value}" for name, value in typed.items() if value is not None]


def groups_of(name: str) -> Iterator[Group]:
    """Yield all settings that a command takes as options, besides its first word."""
    command = COMMANDS[name]
    yield Group("how it runs (changes no result)", some(RUNNING, f"root {command.running} quiet"))
    yield from command.groups
    if command.cluster:  # the command that submit runs is always on Slurm
        requests = some(REQUESTS, but="on") if command.passes else REQUESTS
        yield Group("on a cluster (changes no result)", requests)
