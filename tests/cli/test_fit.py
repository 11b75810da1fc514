"""A corpus smaller than the defaults: what is left out is the largest that fits; an error names what works."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.cli.test_make import make

NAMED = {"CORPUS", "QUERIES", "SAMPLES", "SIZE", "QUIET"}
SAID = "tiny is too small for the defaults:"


def config(root: Path, *words: str) -> dict[str, Any]:
    (first, *_) = mdcr_json(root, "pool", *words)["pools"]
    return dict(first["config"])


def test_what_is_left_out_is_the_largest_that_fits(own: Path) -> None:
    made = mdcr(own, "pool")
    assert made.returncode == 0, made.stderr
    (line,) = [line for line in made.stderr.splitlines() if SAID in line]
    shown = {name: config(own)[name] for name in ("queries", "size")}
    assert line == f"{SAID} --queries {shown['queries']} --size {shown['size']}, the largest that fits"
    for name in shown:
        more = [f"--{each}={value + (each == name)}" for each, value in shown.items()]
        assert "only" in one_line_error(mdcr(own, "pool", "--quiet", *more))
    fewer = config(own, "--size", "900")["queries"]
    assert fewer < shown["queries"]
    assert "positives alone exceed" in one_line_error(mdcr(own, "pool", "--size=900", f"--queries={fewer + 1}"))
    assert config(own, *flags("--size 900 --queries 20"))["year"] == 2019
    assert SAID not in mdcr(own, *flags("pool --size 900 --queries 20")).stderr


@pytest.mark.parametrize(
    "words",
    [
        "pool --queries 3k",
        "pool --size 2M --queries 20 --samples 1",
        "pool --size 40 --queries 20",
        "pool --year 2031",
        "pool --field Medicine,Physics --queries 300 --size 100k",
        "pool --split validation --queries 3k --size 800",
        "tune",
    ],
)
def test_what_was_asked_for_is_an_error_with_the_command_that_works(own: Path, words: str) -> None:
    line = one_line_error(mdcr(own, *flags(words), "--quiet"))
    command = shlex.split(line.partition("This works: mdcr ")[2])
    assert command[0] == words.split()[0]
    assert mdcr(own, *command).returncode == 0


def test_make_is_told_in_the_words_of_make(own: Path, tmp_path: Path) -> None:
    (tmp_path / "corpora").symlink_to(own / "corpora")
    refused = make(tmp_path, "pool", "CORPUS=tiny", "QUERIES=3k", "SAMPLES=1", "QUIET=1").stderr
    command = refused.partition("This works: ")[2].splitlines()[0]
    assert command.startswith("make pool ")
    assert {word.partition("=")[0] for word in command.split()[2:]} == NAMED
    assert "--" not in refused
    assert make(tmp_path, *shlex.split(command)[1:]).returncode == 0
    for words, said in (
        ("YEAR=twenty", "mdcr: YEAR must be a whole number, got 'twenty'."),
        ("SAMPLES=0", "mdcr: SAMPLES must be from 1 to 9999, got 0."),
        ("POSITIVES=prefilterd", "mdcr: POSITIVES must be corpus or prefiltered, got 'prefilterd'. Did you mean"),
    ):
        assert said in make(tmp_path, "pool", words).stderr
    shown = [json.loads(make(tmp_path, "show", "JSON=1", "WHAT=pools").stdout)]
    shown += [mdcr_json(own, "show", "pools"), mdcr_json(own, "show", "--what", "pools")]
    assert shown[0] == shown[1] == shown[2]


def test_a_plan_names_the_models_that_are_absent(own: Path, tmp_path: Path) -> None:
    env = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    pool = flags("--size 900 --queries 20 --samples 1")
    planned = mdcr(own, "eval", *pool, "--model", "lsa,scincl,mean(specter2,specter2_ctrl)", "--dry-run", env=env)
    assert planned.returncode == 0, planned.stderr
    lines = [line for line in planned.stdout.splitlines() if "downloads" in line]
    assert [line.split()[1] for line in lines] == ["embed", "embed"]
    assert "(downloads malteos/scincl first)" in lines[0]
    assert "allenai/specter2_base" in lines[1]
    study = mdcr(own, "study", "pool_size", "--corpus", "tiny", "--model", "scincl", "--dry-run", env=env)
    assert "malteos/scincl would be downloaded" in study.stderr
    assert not (tmp_path / "home").exists()
    assert "malteos/scincl is absent from the cache" in one_line_error(
        mdcr(own, "eval", *pool, "--model", "scincl", env=env), code=1
    )


def test_several_settings_of_a_study(own: Path) -> None:
    words = ["study", "pool_size", "--corpus", "tiny", "--model", "bm25", "--dry-run"]
    assert mdcr(own, *words, "--set", "sizes=800,900; queries=20;samples=1").returncode == 0
    names = [
        [row["make"] for row in mdcr_json(own, *words, "--set", text)["plan"]]
        for text in ("sizes=800,900;queries=20;samples=1", "sizes=800,900;queries=20;samples=1;min_citations=2")
    ]
    assert names[0] == names[1]
    assert "no setting min_citation" in one_line_error(mdcr(own, *words, "--set", "min_citation=2"))
