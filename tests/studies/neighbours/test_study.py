"""The study, run as users run it."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.scores.plot import FORMATS
from pipeline.studies import run
from pipeline.studies.neighbours.operators import CLASSES
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

pytestmark = pytest.mark.slow
SYSTEMS = ("bm25", "latent", "rrf(bm25,lsa)")
NAMES = ["T_ARot", "T_A_DelNNChar", "T_ADelTopNNPH", "T_ADelNum", "T_ADelNN", "TDelNN_A", "TNNU_A", "T_A_WS"]
SMALL = [
    *flags("study neighbours --recipe neighbours_paper --set titles=20 --set papers=12 --model"),
    *("bm25,latent=lsa,rrf(bm25,lsa)", "--set", f"classes={json.dumps(NAMES)}"),
]
NOUNS = ["graph", "network", "model", "theory", "cell", "market", "price", "signal", "neuron", "parser", "proof"]
FORMS = (
    "We study the {0} of a {1} in the deep {2}.",
    "It is shown that the {1} depends on 3 new {0} methods.",
    "The {2} is clearly better for all of the {3} data.",
    "In this paper we train our {3} with a large {0} set.",
)


def paper(number: int) -> dict[str, str]:
    rng = np.random.default_rng(number)
    nouns = rng.permutation(NOUNS)
    sentences = [FORMS[place].format(*rng.permutation(nouns[:5])) for place in rng.permutation(4)]
    return {"id": f"p{number:03}", "title": f"The {nouns[0]} of a deep {nouns[1]}", "abstract": " ".join(sentences)}


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the command of a small study."""
    folder = tmp_path_factory.mktemp("sets")
    with gzip.open(folder / "iclr.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(paper(number)) + "\n" for number in range(60))
    return [*SMALL, "--corpus", "iclr", "--input", str(folder)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def study(root: Path, command: list[str]) -> Any:
    """Return what the study printed: its folder, and its tables as rows. Its figures have every format."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "FORMATS", FORMATS)
        return mdcr_json(root, *command)


def test_it_writes_every_table_and_figure(study: Any) -> None:
    folder = Path(study["folder"])
    written = {path.name for path in folder.iterdir()}
    tables = ("titles", "categories", "optimality", "classes", "counts", "similarities")
    assert {f"{name}.{end}" for name in tables for end in ("md", "csv", "tex")} <= written
    assert {f"titles-iclr-lsa.{end}" for end in ("svg", "pdf", "png")} <= written


def test_systems_are_measured_on_every_task_and_class(study: Any) -> None:
    tables = study["tables"]
    systems = (*SYSTEMS, "latent standardised")
    assert {(row["system"], row["task"], row["measure"]) for row in tables["titles"]} == {
        (system, task, measure) for system in systems for task in ("I", "II") for measure in ("MRR", "T100")
    }
    for system, task in itertools.product(systems, ("I", "II")):
        of = {
            row["measure"]: row["value"] for row in tables["titles"] if (row["system"], row["task"]) == (system, task)
        }
        assert 0 <= of["MRR"] <= of["T100"] <= 100
    counts = {row["class"]: row["neighbours"] for row in tables["counts"]}
    assert set(counts) == set(NAMES)
    measures = ("NN1_Ret", "NN10_Ret", "AOP-10", "AOP-20")
    assert {(row["system"], row["name"], row["measure"]) for row in tables["classes"]} == {
        (system, name, measure) for system in SYSTEMS for name in NAMES if counts[name] for measure in measures
    }
    same_words = {"NN1_Ret": 100, "NN10_Ret": 100, "AOP-10": 90, "AOP-20": 95}  # both lists but one entry are equal
    for row in tables["classes"]:
        assert 0 <= row["value"] <= 100
        assert row["queries"] == min(12, counts[row["name"]])
        if CLASSES[row["name"]].category in ("LL-HS", "LL-PS"):
            assert row["value"] == pytest.approx(same_words[row["measure"]])


def test_neighbours_of_all_papers_are_candidates_unless_sampled(study: Any, command: list[str], tmp_path: Path) -> None:
    settings = ["candidates=sampled", 'classes=["T_A_DelNNChar"]', "standardise=false"]
    few = mdcr_json(tmp_path, *command, *(word for setting in settings for word in ("--set", setting)))
    misspelt = []
    for printed, papers, noted in ((study, 60, False), (few, 12, True)):
        assert max(row["neighbours"] for row in printed["tables"]["counts"]) == papers
        of_bm25 = [
            row for row in printed["tables"]["classes"] if row["system"] == "bm25" and row["measure"] == "AOP-10"
        ]
        misspelt += [row["value"] for row in of_bm25 if row["name"] == "T_A_DelNNChar"]
        for table in ("categories", "optimality", "classes"):
            assert ("candidates=sampled" in (Path(printed["folder"]) / f"{table}.md").read_text()) == noted
    assert misspelt[0] < misspelt[1]


def test_nothing_is_made_twice_and_a_plan_writes_nothing(
    study: Any, command: list[str], root: Path, tmp_path: Path
) -> None:
    assert not mdcr_json(root, *command, "--dry-run")["plan"]
    assert [row["stage"] for row in mdcr_json(tmp_path, *command, "--dry-run")["plan"]] == ["corpus"]
    assert not list(tmp_path.glob("**/manifest.json"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--model", "minilm:distance=l2"], "by cosine, got l2"),
        (["--set", 'classes=["T_ARott"]'], "T_ARot"),
        (["--corpus", "absent"], "absent.jsonl.gz"),
        (["--set", "papers=-1"], "papers"),
        (["--set", "titles=0"], "titles must be a number from 1"),
    ],
)
def test_bad_input_is_one_line(root: Path, command: list[str], arguments: list[str], named: str) -> None:
    assert named in one_line_error(mdcr(root, *command, *arguments))
