"""The study, run as users run it."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.studies.neighbours.operators import CLASSES
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

pytestmark = pytest.mark.slow
SYSTEMS = ("bm25", "latent", "rrf(bm25,lsa)")
SMALL = [*flags("study neighbours --set titles=20 --set papers=12 --model"), "bm25,latent=lsa,rrf(bm25,lsa)"]
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("sets")
    with gzip.open(found / "iclr.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(paper(number)) + "\n" for number in range(60))
    values = zip(SYSTEMS, (0.1, 0.2, 0.3), strict=True)
    (found / "map.csv").write_text("system,value\n" + "".join(f'"{system}",{value}\n' for system, value in values))
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Any:
    root = tmp_path_factory.mktemp("study")
    return root, mdcr_json(
        root, *SMALL, "--corpus", "iclr", "--input", str(folder), "--set", f"quality={folder / 'map.csv'}"
    )


def rows(found: Any, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((Path(found[1]["folder"]) / f"{name}.csv").open()))


def test_it_writes_every_table_and_figure(found: Any) -> None:
    report = Path(found[1]["folder"])
    written = {path.name for path in report.iterdir()}
    tables = ("titles", "categories", "optimality", "classes", "counts", "similarities", "correlation")
    figures = ("classes-nn1-ret", "classes-nn10-ret", "classes-aop-10", "titles-lsa")
    assert {f"{name}.{end}" for name in tables for end in ("md", "csv", "tex")} <= written
    assert {f"{name}.{end}" for name in figures for end in ("svg", "pdf", "png")} <= written
    page = (report / "index.html").read_text()
    shown = dict(re.findall(r"<h2>(.*?)</h2>(.*?)</section>", page, re.DOTALL))
    assert {"Distributions of similarities", "What each class changes"} <= set(shown)
    for title, name, measure, column, scale in (
        ("Classes by systems", "classes", "AOP-10", "value", 1),
        ("Similarities by class (percent)", "similarities", "", "mean", 100),
    ):
        cells = dict(re.findall(r'<th scope="row">\S+ (\w+)</th><td>([-\d.]+)</td>', shown[title]))
        first = {row["name"]: row for row in reversed(rows(found, name)) if row.get("measure", "") == measure}
        assert cells == {name: f"{scale * float(row[column]):.1f}" for name, row in first.items()}
    assert "| iclr specter (paper, ICLR) | 58.6 | 91.5 | 22.1 | 66.5 |" in (report / "titles.md").read_text()
    assert "(titles as queries, task I)" in (report.parent / "index.html").read_text()
    precisions = {row["system"]: float(row["MAP"]) for row in rows(found, "correlation")}
    assert precisions == pytest.approx(dict(zip(SYSTEMS, (10, 20, 30), strict=True)))


def test_systems_are_measured_on_every_task_and_class(found: Any) -> None:
    titles = {(row["system"], row["task"], row["measure"]) for row in rows(found, "titles")}
    systems = (*SYSTEMS, "latent standardised")
    assert titles == {(s, task, m) for s in systems for task in ("I", "II") for m in ("MRR", "T100")}
    classes = rows(found, "classes")
    counts = {row["class"]: int(row["neighbours"]) for row in rows(found, "counts")}
    assert set(counts) == set(CLASSES)
    measures = ("NN1_Ret", "NN10_Ret", "AOP-10", "AOP-20")
    assert {(row["system"], row["name"], row["measure"]) for row in classes} == {
        (system, name, measure) for system in SYSTEMS for name in CLASSES if counts[name] for measure in measures
    }
    assert all(0 <= float(row["value"]) <= 100 for row in classes)
    for row in classes:
        assert int(row["queries"]) == min(12, counts[row["name"]])
        same_words = CLASSES[row["name"]].category in ("LL-HS", "LL-PS")
        if same_words and row["measure"].startswith("AOP"):
            depth = int(row["measure"][-2:])
            assert float(row["value"]) == pytest.approx(100 * (depth - 1) / depth), "both lists but one entry are equal"
        if same_words and row["measure"].startswith("NN"):
            assert float(row["value"]) == 100


def test_neighbours_of_all_papers_are_candidates_unless_sampled(found: Any, folder: Path, tmp_path: Path) -> None:
    assert max(int(row["neighbours"]) for row in rows(found, "counts")) == 60
    arguments = [*SMALL, "--corpus", "iclr", "--input", str(folder), "--set", f"quality={folder / 'map.csv'}"]
    few = tmp_path, mdcr_json(tmp_path, *arguments, "--set", "candidates=sampled")
    assert max(int(row["neighbours"]) for row in rows(few, "counts")) == 12
    misspelt = [
        float(row["value"])
        for study in (found, few)
        for row in rows(study, "classes")
        if (row["system"], row["name"], row["measure"]) == ("bm25", "T_A_DelNNChar", "AOP-10")
    ]
    assert misspelt[0] < misspelt[1]
    for table in ("categories", "optimality", "classes", "correlation"):
        texts = [(Path(study[1]["folder"]) / f"{table}.md").read_text() for study in (found, few)]
        assert ["candidates=sampled" in text for text in texts] == [False, True]


def test_nothing_is_made_twice_and_a_plan_writes_nothing(found: Any, folder: Path, tmp_path: Path) -> None:
    arguments = [*SMALL, "--corpus", "iclr", "--input", str(folder)]
    assert not mdcr_json(found[0], *arguments, "--dry-run")["plan"]
    plan = mdcr_json(tmp_path, *arguments, "--dry-run")["plan"]
    assert [row["stage"] for row in plan] == ["corpus"]
    assert not list(tmp_path.glob("**/manifest.json"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--model", "minilm:distance=l2"], "by cosine, got l2"),
        (["--set", 'classes=["T_ARott"]'], "T_ARot"),
        (["--corpus", "absent"], "absent.jsonl.gz"),
        (["--set", "quality=absent.csv"], "absent.csv"),
        (["--set", "papers=-1"], "papers"),
        (["--set", "candidates=some"], "candidates must be all or sampled, got 'some'"),
        (["--set", "titles=0"], "titles must be a number from 1"),
    ],
)
def test_bad_input_is_one_line(found: Any, folder: Path, arguments: list[str], named: str) -> None:
    result = mdcr(found[0], *SMALL, "--corpus", "iclr", "--input", str(folder), *arguments)
    assert named in one_line_error(result)
