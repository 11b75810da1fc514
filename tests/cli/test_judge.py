"""``mdcr judge``: pairs drawn, labels read and systems scored; what it refuses; pages and audit."""

from __future__ import annotations

import csv
import itertools
import json
import os
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.workspace import SCORES
from pipeline.sources.judgements import read_judgements
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

POOL = flags("--year 2019 --size 300 --queries 12 --seed 5 --samples 1 --model lsa:dimension=8,newest")
POOL_DRAW = ("judge", "draw", *POOL)
DRAW = (*POOL_DRAW, *flags("--pairs 150 --grades 2 --second 0.4 --ranks 10"))


def written(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / name).open(newline="") as handle:
        return list(csv.DictReader(handle))


def save(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    rows = list(rows)
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def relevance(row: Mapping[str, str]) -> int:
    return random.Random(row["query_id"] + row["paper_id"]).choices([0, 1, 2], [0.5, 0.3, 0.2])[0]


@pytest.fixture(scope="module")
def draw(root: Path) -> dict[str, Any]:
    return dict(mdcr_json(root, *DRAW))


@pytest.fixture(scope="module")
def folder(draw: dict[str, Any]) -> Path:
    return Path(draw["files"][0]).parent


@pytest.fixture(scope="module")
def files(folder: Path) -> list[str]:
    """The labels of two people, one of whom left rows empty, and of a model, as options."""
    people, second = written(folder, "people.csv"), written(folder, "people-2.csv")
    ann = save(folder / "ann.csv", ({**row, "label": relevance(row) if n % 25 else ""} for n, row in enumerate(people)))
    ben = save(folder / "ben.csv", ({**row, "label": 2 - relevance(row) if n < 3 else relevance(row)}
                                    for n, row in enumerate(second)))  # fmt: skip
    model = folder / "model.jsonl"
    records = [json.loads(line) for line in (folder / "machine.jsonl").read_text().splitlines()]
    model.write_text("".join(json.dumps({**row, "label": min(relevance(row), 1)}) + "\n" for row in records))
    return [*flags("--labels"), str(ann), *flags("--labels"), str(ben), *flags("--machine"), str(model)]


@pytest.fixture(scope="module")
def labels(root: Path, files: list[str]) -> dict[str, Any]:
    return dict(mdcr_json(root, "judge", "read", *files))


@pytest.fixture(scope="module")
def scores(root: Path, labels: dict[str, Any]) -> dict[str, Any]:
    return dict(mdcr_json(root, "judge", "score", *POOL, "--measures", "precision@1,precision@10,dcg@10"))


def test_pairs_are_blind_and_drawn_with_the_probabilities_that_are_stored(draw: dict[str, Any], folder: Path) -> None:
    pairs = pl.DataFrame(Artifact.open(Path(draw["draw"]["path"])).arrow("pairs.arrow"))
    people, machine = written(folder, "people.csv"), (folder / "machine.jsonl").read_text().splitlines()
    assert len(people) == pairs["drawn"].sum() == draw["draw"]["counts"]["drawn"]
    assert pairs["probability"].sum() == pytest.approx(150)
    assert abs(len(people) - 150) < 4 * np.sqrt((pairs["probability"] * (1 - pairs["probability"])).sum())
    assert len(machine) == len(pairs)
    columns = ["query_id", "paper_id", "query_title", "query_abstract", "title", "abstract", "label"]
    assert [*people[0]] == columns == [*json.loads(machine[0])]
    assert {row["label"] for row in people} == {""}
    keys = [(row["query_id"], row["paper_id"]) for row in people]
    assert keys != sorted(keys)
    assert {(row["query_id"], row["paper_id"]) for row in written(folder, "people-2.csv")} < set(keys)
    assert "0 not relevant, 1 partly, 2 relevant" in (folder / "instructions.md").read_text()


def test_a_larger_draw_contains_the_smaller_one(root: Path, folder: Path, tmp_path: Path) -> None:
    larger = mdcr_json(root, *DRAW, "--pairs", "200", "--output", str(tmp_path))
    small, large = (
        {(row["query_id"], row["paper_id"]) for row in written(place, "people.csv")}
        for place in (folder, Path(larger["files"][0]).parent)
    )
    assert small < large


def test_labels_are_counted_and_agreement_is_krippendorffs(labels: dict[str, Any], folder: Path) -> None:
    import krippendorff

    counts = labels["labels"]["counts"]
    ann, ben = ({(row["query_id"], row["paper_id"]): int(row["label"]) for row in written(folder, f"{name}.csv")
                 if row["label"]} for name in ("ann", "ben"))  # fmt: skip
    assert counts == {
        "labels": len(ann) + len(ben), "pairs": len(ann | ben), "annotators": 2,
        "machine": len((folder / "model.jsonl").read_text().splitlines()), "ignored": 0,
    }  # fmt: skip
    agreed = {row["annotators"]: row for row in labels["agreement"]}["ann and ben"]
    shared = sorted(ann.keys() & ben.keys())
    grades = [[of[key] for key in shared] for of in (ann, ben)]
    assert agreed["pairs"] == len(shared)
    assert agreed["alpha"] == pytest.approx(krippendorff.alpha(grades, level_of_measurement="ordinal"))


def test_estimates_stand_beside_the_figures_of_citations(root: Path, scores: dict[str, Any]) -> None:
    rows = {(row["by"], row["system"], row["measure"]): row for row in scores["judged"]}
    assert {by for by, *_ in rows} == {"judged", "citations"}
    for artifact in map(Artifact.open, (root / SCORES).glob("[!.]*")):
        frame = pl.DataFrame(artifact.arrow("scores.arrow")).filter(measure="precision@1")
        assert frame["value"].mean() == pytest.approx(rows["citations", frame["system"][0], "precision@1"]["value"])
    first, second = (rows["judged", system, "dcg@10"] for system in ("lsa:dimension=8", "newest"))
    assert first["low"] < first["value"] < first["high"]
    assert second["difference"] == pytest.approx(second["value"] - first["value"])
    values = pl.read_csv(scores["values"])
    mean = values.filter(system="newest", metric="judged-dcg@10")["value"].mean()
    assert mean == pytest.approx(second["value"])


def test_the_newest_labels_count_in_a_copy_too(root: Path, own: Path, files: list[str], folder: Path) -> None:
    """Which ones is said; neither times of files nor reading older labels again changes it."""
    mdcr_json(own, *DRAW)
    others = save(folder / "others.csv", ({**row, "label": 1} for row in written(folder, "people.csv")))
    first, second = (mdcr_json(own, "judge", "read", *words)["labels"] for words in (files, ["--labels", str(others)]))
    again = mdcr(own, "judge", "read", *files)
    assert f"of 2 labels the newest counts: {Path(second['path']).name}, not {Path(first['path']).name}" in again.stderr
    for number, manifest in enumerate(sorted((own / "runs/judged").glob("labels*/manifest.json"))):
        os.utime(manifest, (number, number) if str(manifest).startswith(first["path"]) else (0, 0))
    scored = mdcr(own, "judge", "score", *POOL)
    assert f"of 2 labels the newest counts: {Path(second['path']).name}" in scored.stderr
    assert mdcr_json(own, "judge", "score", *POOL)["judged"] != mdcr_json(root, "judge", "score", *POOL)["judged"]


def test_whole_queries_give_the_measures_of_their_labels(own: Path, tmp_path: Path) -> None:
    draw = mdcr_json(own, *DRAW, *flags("--design queries --queries-judged 12 --second 0"), "--output", str(tmp_path))
    priced = pl.DataFrame(draw["prices"])
    assert {*priced["design"]} == {"pairs", "queries"}
    assert (priced.drop_nulls("system")["system"] > 0).all()
    place = Path(draw["files"][0]).parent
    rows = written(place, "people.csv")
    queries = [row["query_id"] for row in rows]
    assert len({*queries}) == 12
    assert sum(one != other for one, other in itertools.pairwise(queries)) == 11  # pairs of a query are together
    path = save(place / "all.csv", ({**row, "label": relevance(row)} for row in rows))
    mdcr_json(own, "judge", "read", "--labels", str(path))
    answer = mdcr_json(own, "judge", "score", *POOL, "--measures", "precision@10,recall@5,map,ndcg@5")["judged"]
    export = mdcr_json(own, "export", "run", *POOL, "--output", str(tmp_path))["exported"]
    qrels = tmp_path / "judged.qrels"
    qrels.write_text("".join(f"{r['query_id']} 0 {r['paper_id']} {r['label']}\n" for r in written(place, "all.csv")))
    evaluated = mdcr_json(
        own, "evaluate", *(f"--run={run}" for run in export), f"--qrels={qrels}", *flags("--no-positive zero"),
        "--measures", "precision@10,recall@5,map,ndcg@5",
    )  # fmt: skip
    expected = {(row["system"].split("-")[0][:3], row["measure"]): row["value"] for row in evaluated["rows"]}
    for row in answer:
        if row["by"] == "judged":
            assert row["value"] == pytest.approx(expected[row["system"][:3], row["measure"]], abs=1e-9)
            assert row["low"] is None  # 12 queries are too few to conclude
    partial = save(place / "part.csv", ({**row, "label": "" if n < 3 else 1} for n, row in enumerate(rows)))
    mdcr_json(own, "judge", "read", "--labels", str(partial))
    text = mdcr(own, "judge", "score", *POOL).stdout
    assert "11 of 12 queries in full. Labels: part" in text
    assert "too few to conclude" in text
    assert "1 query with labels of some pairs alone left out" in text
    refused = one_line_error(mdcr(own, "judge", "score", *POOL, "--measures", "dcg@10"))
    assert "dcg@10 is no fraction" in refused


def test_labels_in_words_and_of_other_pairs(own: Path, tmp_path: Path) -> None:
    drawn = mdcr_json(own, *POOL_DRAW, *flags("--pairs 60 --grades yes,no"), "--output", str(tmp_path))
    place = Path(drawn["files"][0]).parent
    assert "yes or no, from most to least relevant" in (place / "instructions.md").read_text()
    rows = written(place, "people.csv")
    extra = [{**rows[0], "paper_id": "another"}]
    path = save(place / "ann.csv", ({**row, "label": "Yes" if n % 3 else "no"} for n, row in enumerate(rows + extra)))
    assert "not a pair of this draw" in one_line_error(mdcr(own, "judge", "read", "--labels", str(path)))
    read = mdcr_json(own, "judge", "read", "--labels", str(path), "--extra", "ignore")
    assert read["labels"]["counts"]["labels"] == len(rows)
    assert read["labels"]["counts"]["ignored"] == 1
    labels = pl.DataFrame(Artifact.open(Path(read["labels"]["path"])).arrow("labels.arrow"))
    assert labels["grade"].sum() == sum(1 for n in range(len(rows)) if n % 3)
    for grades in ("no,yes", "yes,yes", "0", "yes"):
        assert "--grades must be a scale" in one_line_error(mdcr(own, *POOL_DRAW, "--grades", grades))


def test_tables_say_how_many_pairs_stand_behind_them(root: Path, labels: dict[str, Any]) -> None:
    result = mdcr(root, "judge", "score", *POOL)
    assert result.returncode == 0, result.stderr
    counts = labels["labels"]["counts"]
    universe = f"{counts['machine']:,} pairs"
    assert f"{counts['pairs']:,} of {universe} judged by 2 annotators, {universe} by a model" in result.stdout
    assert "newest minus lsa:dimension=8" in result.stdout
    assert "Relevance of cited and uncited papers" in result.stdout


def test_an_audit_takes_the_values(root: Path, scores: dict[str, Any]) -> None:
    rows = {row["system"]: row for row in scores["judged"] if (row["by"], row["measure"]) == ("judged", "precision@10")}
    audit = mdcr_json(root, "audit", scores["values"], "--metric", "judged-precision@10")
    assert {row["system"]: row["mean"] for row in audit["tables"]["board"]} == pytest.approx(
        {system: row["value"] for system, row in rows.items()}
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: [{**row, "paper_id": "nobody"} for row in rows[:1]], "paper 'nobody' is not a pair of this draw"),
        (lambda rows: [{**row, "query_id": "nobody"} for row in rows[:1]], "query 'nobody' with paper"),
        (lambda rows: [{**row, "label": 3} for row in rows], "a label must be from 0 to 2, got 3. Correct it"),
        (lambda rows: [{**row, "label": "yes"} for row in rows], "a grade must be a whole number"),
        (lambda rows: [{**row, "label": ""} for row in rows], "has no label. Fill in its column label"),
        (lambda rows: [rows[0], {**rows[0], "label": 1}], "given has two labels of query"),
        (lambda rows: [{"query_id": row["query_id"], "label": 1} for row in rows], "is not a judgement"),
        (lambda rows: [{"query_id": "q", "paper_id": "p"} for _ in rows], "must name a column of grades"),
    ],
)  # fmt: skip
def test_bad_labels_are_one_line(root: Path, folder: Path, tmp_path: Path, change: Any, message: str) -> None:
    rows = [{**row, "label": 0} for row in written(folder, "people.csv")]
    path = save(tmp_path / "given.csv", change(rows))
    line = one_line_error(mdcr(root, "judge", "read", "--labels", str(path), "--draw", folder.name))
    assert message in line
    assert str(path) in line


def test_empty_and_absent_files_are_one_line(root: Path, folder: Path, tmp_path: Path) -> None:
    empty, latin = tmp_path / "empty.csv", tmp_path / "latin.csv"
    empty.write_text("")
    latin.write_bytes("query_id,paper_id,label\nä,b,1\n".encode("latin-1"))
    read = ("judge", "read", "--draw", folder.name, "--labels")
    assert f"{empty} holds no data" in one_line_error(mdcr(root, *read, str(empty)))
    assert "is not a whole row in UTF-8" in one_line_error(mdcr(root, *read, str(latin)))
    assert "there is no file" in one_line_error(mdcr(root, *read, str(tmp_path / "none.csv")))
    assert "--labels must be given" in one_line_error(mdcr(root, "judge", "read"))
    assert "there is no draw 'other'" in one_line_error(mdcr(root, *read, str(empty), "--draw", "other"))
    long = save(tmp_path / "long.csv", [{"query_id": "q" * 1_000, "paper_id": "p", "label": 1}] * 3_000)
    with pytest.raises(InputError, match="needs more than 8 MiB of memory"):
        list(read_judgements(long, memory=2**23))


def test_a_model_must_judge_more_than_people_do(root: Path, folder: Path, labels: dict[str, Any]) -> None:
    ann = folder / "ann.csv"
    draw = ("--draw", folder.name)
    mdcr_json(root, "judge", "read", "--labels", str(folder / "ben.csv"), "--machine", str(folder / "ben.csv"), *draw)
    result = mdcr(root, "judge", "score", *POOL, *draw)
    assert "the model must label more pairs than people did" in one_line_error(result)
    mdcr_json(root, "judge", "read", "--labels", str(ann), *draw)
    assert mdcr(root, "judge", "score", *POOL, *draw).returncode == 0


def test_labels_belong_to_the_pool_that_was_drawn(root: Path, labels: dict[str, Any]) -> None:
    other = [word.replace("300", "400") for word in POOL]
    assert "no pairs of this pool were drawn" in one_line_error(mdcr(root, "judge", "score", *other))
    mdcr_json(root, "judge", "draw", *other)
    assert "no labels of draw-tiny" in one_line_error(mdcr(root, "judge", "score", *other))


def test_one_pool_is_judged_at_a_time(root: Path) -> None:
    words = [word for word in POOL if word not in ("--samples", "1")]
    assert "one pool and its systems must be given, got 2 pools" in one_line_error(
        mdcr(root, "judge", "draw", *words, "--samples", "2")
    )


def test_systems_that_were_not_drawn_say_what_is_outside(root: Path, labels: dict[str, Any], folder: Path) -> None:
    words = [word.replace("newest", "random") for word in POOL]
    result = mdcr(root, "judge", "score", *words, "--draw", folder.name)
    assert result.returncode == 0, result.stderr
    assert "were no part of the draw, and count as not relevant" in result.stdout
