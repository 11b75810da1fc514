"""A corpus smaller than the defaults: what is left out is the nearest that fits; an error names what works."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.cli.test_make import make

SAID = "tiny is too small for the defaults:"


def config(root: Path, *words: str) -> dict[str, Any]:
    return dict(mdcr_json(root, "pool", *words)["pools"][0]["config"])


def test_what_is_left_out_is_the_nearest_that_fits(root: Path) -> None:
    made = mdcr(root, "tune", "--dry-run")
    assert made.returncode == 0, made.stderr
    (line,) = [line for line in made.stderr.splitlines() if SAID in line]
    shown = {name: config(root)[name] for name in ("queries", "size")}
    shown_as = f"--queries={shown['queries']} --size={shown['size']}, the nearest that fits"
    assert line == f"{SAID} {shown_as} and leaves as many for mdcr tune"
    for larger in shown:
        more = [f"--{name}={value + (name == larger)}" for name, value in shown.items()]
        assert "only" in one_line_error(mdcr(root, "tune", "--quiet", "--dry-run", *more))
    fewer = config(root, "--size", "900")["queries"]
    assert fewer < shown["queries"]
    assert "alone exceed" in one_line_error(mdcr(root, "tune", "--dry-run", "--size=900", f"--queries={fewer + 1}"))
    assert config(root, *flags("--size 900 --queries 20"))["year"] == 2019
    assert SAID not in mdcr(root, *flags("pool --size 900 --queries 20")).stderr


@pytest.mark.java
def test_tune_and_eval_work_without_options(root: Path) -> None:
    shown = config(root)
    assert mdcr(root, "tune").returncode == 0
    made = mdcr(root, "eval")
    assert "bm25: k1=" in made.stderr
    assert "not tuned" not in made.stderr
    assert f"{shown['queries']} queries" in made.stdout
    assert "bm25:k1=0.9,b=0.4" in made.stdout


def test_a_plan_says_what_cannot_work(root: Path) -> None:
    for command in ("pool --dry-run", "submit eval --model bm25 --dry-run"):
        refused = one_line_error(mdcr(root, *flags(f"{command} --year 2031")))
        assert "no paper of 2031 can be a query. Choose another --year" in refused


@pytest.mark.parametrize(
    "words",
    [
        "pool --queries 3k",
        "pool --size 2M --queries 20 --samples 1",
        "pool --size 40 --queries 20",
        "pool --field Medicine,Physics --queries 300 --size 100k",
        "pool --split validation --queries 3k --size 800",
    ],
)
def test_what_was_asked_for_is_an_error_with_the_options_that_work(root: Path, words: str) -> None:
    works = changed(one_line_error(mdcr(root, *flags(words))))
    typed = dict(zip(words.split()[1::2], words.split()[2::2], strict=True)) | works
    assert mdcr(root, "pool", *(f"{name}={value}" for name, value in typed.items())).returncode == 0


def changed(line: str) -> dict[str, str]:
    """Return the options that an error proposes, with their values."""
    words = shlex.split(line.partition("This works: ")[2])
    return dict(
        zip((word.partition("=")[0] for word in words), (word.partition("=")[2] for word in words), strict=True)
    )


def test_make_is_told_the_options_that_work(root: Path, tmp_path: Path) -> None:
    (tmp_path / "corpora").symlink_to(root / "corpora")
    refused = make(tmp_path, "pool", "CORPUS=tiny", "QUERIES=3k", "SAMPLES=1", "QUIET=1").stderr
    assert {*changed(refused.splitlines()[0])} == {"--queries", "--size"}
    shown = json.loads(make(tmp_path, "show", "JSON=1", "WHAT=pools").stdout)
    assert shown == mdcr_json(root, "show", "pools") == mdcr_json(root, "show", "--what", "pools")


def test_a_plan_names_the_models_that_are_absent(root: Path, tmp_path: Path) -> None:
    env = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    pool = flags("--size 900 --queries 20 --samples 1")
    planned = mdcr(root, "eval", *pool, "--model", "lsa,scincl,mean(specter2,specter2_ctrl)", "--dry-run", env=env)
    assert planned.returncode == 0, planned.stderr
    scincl, mean = [line for line in planned.stdout.splitlines() if "downloads" in line]
    assert (scincl.split()[1], mean.split()[1]) == ("embed", "embed")
    assert "(downloads malteos/scincl first)" in scincl
    assert "allenai/specter2_base" in mean
    study = mdcr(root, "study", "pool_size", "--corpus", "tiny", "--model", "scincl", "--dry-run", env=env)
    assert "malteos/scincl would be downloaded" in study.stderr
    assert not (tmp_path / "home").exists()
    failed = mdcr(root, "eval", *pool, "--model", "scincl", env=env)
    assert "malteos/scincl is absent from the cache" in one_line_error(failed, code=1)
