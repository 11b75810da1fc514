"""What another package brings by ``mdcr.register_*`` and an entry point: the examples of the documentation, run."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.core.errors import InputError
from pipeline.encode import names
from pipeline.measure.measures import measure
from pipeline.sources.registry import Source, register
from pipeline.studies.base import register as register_study
from tests.cli.run import Result, elsewhere, one_line_error

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "extending.md"
Run = Callable[..., list[Result]]


@pytest.fixture
def installed(tmp_path: Path) -> Run:
    """Write the page's Python as an installed package with its entry point; return what runs commands with it."""
    module, study, recipe, points = re.findall(r"```(?:python|toml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    point = re.findall(r'\[project.entry-points.mdcr\]\n(\w+) = "(.*)"', points)[0]
    (tmp_path / "mylab-1.0.dist-info").mkdir()
    for name, text in {
        "mylab.py": module,
        "mylab_positions.py": study,
        "positions.toml": recipe,
        "mylab-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: mylab\nVersion: 1.0\n",
        "mylab-1.0.dist-info/entry_points.txt": "[mdcr]\n{} = {}\n".format(*point),
    }.items():
        (tmp_path / name).write_text(text)
    paths = [tmp_path, ROOT, ROOT / "pipeline/alias"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    return lambda *commands: elsewhere([command.split() for command in commands], tmp_path, env)


def test_the_examples_of_the_page_work_in_commands(tmp_path: Path, installed: Run) -> None:
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers/a.txt").write_text("".join(f"paper {n}\tgraph retrieval of topic {n}\n" for n in range(40)))
    (tmp_path / "qrels.trec").write_text("q 0 b 1\n")
    (tmp_path / "a.run").write_text("q Q0 a 1 2 x\nq Q0 b 2 1 x\n")
    ended = installed(
        "corpus --source tabbed --input papers --corpus mine",
        "show measures",
        "models",
        "corpus --source synthetic --papers 300 --corpus made --workers 1",
        "eval --corpus made --model letters:alphabet=etaoin --size all --queries 5 --samples 1 --format csv",
        "evaluate --run a.run --qrels qrels.trec --measures first-hit --format csv",
    )
    assert [result.returncode for result in ended] == [0] * 6, [result.stderr for result in ended]
    built, measures, models, _, encoded, printed = (result.stdout for result in ended)
    assert re.search(r"kept +40", built)
    assert "first-hit" in measures
    assert all(name in models for name in ("minilm-128", "letters"))
    assert ",letters:alphabet=etaoin," in encoded
    assert re.search(",first-hit,.*0.5", printed)


OPTION = """
from dataclasses import dataclass
from pipeline.core.settings import setting
from pipeline.sources.options import Options

@dataclass(frozen=True)
class OfSeparated(Options):
    separator: str | None = setting(None, "what separates id and title")

mdcr.register_source("separated", mdcr.Source("mylab:Tabbed", "lines of id and title", OfSeparated))
"""


def test_an_option_of_a_source_is_one_of_the_command(tmp_path: Path, installed: Run) -> None:
    (tmp_path / "mylab.py").write_text((tmp_path / "mylab.py").read_text() + OPTION)
    shown, refused = installed("corpus --help", "corpus --source tabbed --input . --separator x")
    assert "separated: what separates id and title" in " ".join(shown.stdout.split())
    assert "source tabbed has no option --separator" in refused.stderr


def test_the_study_of_the_page_runs_and_is_listed(installed: Run) -> None:
    made, listed, ran, unknown, scored = installed(
        "corpus --source synthetic --papers 4000 --corpus made",
        "study",
        "study positions --json",
        "study positionz",
        "eval --year 2016 --size 500 --queries 20 --model bm25,newest --depth 100 "
        "--measures map,recall@10 --format csv",
    )
    assert (made.returncode, listed.returncode, ran.returncode) == (0, 0, 0), (made.stderr, listed.stderr, ran.stderr)
    assert re.search(r"positions +where positives rank", listed.stdout)
    tables = {
        name: {(row["label"], row["column"]): row["value"] for row in rows}
        for name, rows in json.loads(ran.stdout)["tables"].items()
    }
    rows = csv.DictReader(scored.stdout.splitlines())
    scores = {(row["system"], row["measure"]): float(row["value"]) for row in rows if not row["sample"]}
    for system in ("bm25", "newest"):
        lost = sum(value for (label, _), value in tables["losses"].items() if label == system)
        assert lost == pytest.approx(1 - scores[system, "map"])
        assert tables["recall"][system, "10"] == pytest.approx(scores[system, "recall@10"])
    assert "there is no study 'positionz'. Did you mean 'positions'?" in one_line_error(unknown)


def test_what_cannot_be_loaded_is_one_line(tmp_path: Path, installed: Run) -> None:
    (tmp_path / "mylab_positions.py").write_text("import nothing_of_this_name\n")
    (study,) = installed("study positions")
    assert "the study positions (mylab_positions) cannot be loaded (No module named" in one_line_error(study)
    (tmp_path / "mylab.py").write_text("import nothing_of_this_name\n")
    (plug_in,) = installed("doctor")
    assert "the plug-in mylab (mylab) cannot be loaded (ModuleNotFoundError" in one_line_error(plug_in)


def test_names_that_are_taken_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be called 'minilm'"):
        names.register("minilm", hub="other/model")
    with pytest.raises(InputError, match="cannot be called 'newest'"):
        names.register("newest", like="lsa")
    with pytest.raises(InputError, match="there is no encoder 'minilmm'. Did you mean 'minilm'"):
        names.register("another", like="minilmm")
    with pytest.raises(InputError, match="there is a measure 'map' already"):
        measure("map", "Mine")(lambda hits: hits)
    with pytest.raises(InputError, match="there is a study 'overlap' already"):
        register_study("overlap", "mylab_overlap")
    with pytest.raises(InputError, match="there is a source 'beir' already"):
        register("beir", Source("mylab:Mine", "mine"))
