"""Small benchmarks in the published layout, and what trec_eval measures of their scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval

from pipeline.studies.mdcr.lists import TRUE, BenchmarkLists, candidates_of
from tests.builders import made_up_paper
from tests.cli.run import mdcr_json

MEASURES = {"map": "map", "ndcg": "ndcg", "recall_5": "recall@5"}
TYPES = ("bm25", "graph", "random")
Values = dict[str, dict[str, float]]
"""By field and measure."""


def random_lists(seed: int) -> dict[str, dict[str, dict[str, list[str]]]]:
    """Return lists of two fields that share a query; some candidates stand twice, once as positive."""
    chance = np.random.default_rng(seed)
    ids = [f"{number:05d}" for number in range(60)]

    def query(name: str) -> dict[str, list[str]]:
        others = chance.permutation([paper for paper in ids if paper != name]).tolist()
        by_type = {kind: others[start : start + 6] for kind, start in zip(TYPES, (0, 6, 12), strict=True)}
        return by_type | {TRUE: others[17 : 17 + chance.integers(1, 6)]}  # the first may be of type random too

    return {field: {name: query(name) for name in names} for field, names in (("Art", ids[:6]), ("Physics", ids[4:9]))}


def write_split(
    folder: Path, split: str, lists: BenchmarkLists, first: int = 0, *, zebra: bool = False
) -> BenchmarkLists:
    """Write a split whose papers are numbered from ``first``, and return its lists.

    With ``zebra``, one paper shares no term with any query.
    """

    def moved(paper: str) -> str:
        return f"{int(paper) + first:05d}"

    folder.mkdir(exist_ok=True)
    renamed = {
        field: {moved(q): {t: list(map(moved, ids)) for t, ids in types.items()} for q, types in queries.items()}
        for field, queries in lists.items()
    }
    (folder / f"mdcr_{split}.json").write_text(json.dumps(renamed))
    papers = [made_up_paper(number) for number in range(first, first + 60)]
    papers[17] |= {"title": "Zebra", "abstract": ""} if zebra else {}
    rows = ({name: paper[name] for name in ("paper_id", "title", "abstract")} for paper in papers)
    (folder / f"mdcr_{split}_data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return renamed


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a benchmark with a test split; other tests only read it."""
    folder = tmp_path_factory.mktemp("published")
    write_split(folder, "test", random_lists(1), zebra=True)
    return folder


@pytest.fixture(scope="package")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace")


def pairs_of(lists: BenchmarkLists) -> list[tuple[str, str]]:
    """Return each pair of query and candidate once."""
    queries = [item for queries in lists.values() for item in queries.items()]
    return list(dict.fromkeys((query, paper) for query, by_type in queries for paper in sorted(candidates_of(by_type))))


def by_pytrec_eval(lists: BenchmarkLists, scores: dict[str, float]) -> Values:
    """Return the measures of each field and their mean, as the authors' evaluation computes them."""
    values: Values = {}
    for field, queries in lists.items():
        qrels = {q: {c: int(c in by_type[TRUE]) for c in candidates_of(by_type)} for q, by_type in queries.items()}
        run = {q: {c: float(scores[f"{q}_{c}"]) for c in judged} for q, judged in qrels.items()}
        of_queries = pytrec_eval.RelevanceEvaluator(qrels, set(MEASURES)).evaluate(run).values()
        values[field] = {ours: float(np.mean([q[theirs] for q in of_queries])) for theirs, ours in MEASURES.items()}
    values["AVG"] = {name: float(np.mean([values[field][name] for field in lists])) for name in MEASURES.values()}
    return values


def study_lists(workspace: Path, folder: Path, systems: str, *further: str) -> dict[str, Any]:
    """Return what the study says of systems on a benchmark."""
    command = ["study", "mdcr_eval", "--input", str(folder), "--set", "baseline=", "--model", systems]
    return mdcr_json(workspace, *command, *further)


def export_scores(workspace: Path, folder: Path, system: str) -> dict[str, float]:
    """Return the score file that the study writes of a system."""
    report = Path(study_lists(workspace, folder, system, "--set", "score_files=true")["folder"])
    (file,) = report.glob("scores-*.json")
    scores: dict[str, float] = json.loads(file.read_text())
    file.unlink()
    return scores


def evaluate(workspace: Path, folder: Path, system: str, *further: str) -> Values:
    """Return what the study says of one system."""
    values: Values = {}
    for row in study_lists(workspace, folder, system, *further)["tables"]["fields"]:
        values.setdefault(row["field"], {})[row["measure"]] = row["value"]
    return values


def close(values: Values) -> dict[str, Any]:
    """Return what equals the measures of all fields, but for rounding."""
    return {field: pytest.approx(of_field, abs=5e-7) for field, of_field in values.items()}
