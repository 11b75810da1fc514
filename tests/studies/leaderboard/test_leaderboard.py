"""The leaderboard of a workspace, its submissions, and the card of an encoder, run as users run them."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shlex
import shutil
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.api import Workspace
from pipeline.api import open as open_workspace
from pipeline.core.errors import InputError
from pipeline.core.runner import Runner
from pipeline.studies import submissions
from pipeline.studies.leaderboard import study
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error, scores_of
from tests.stages.making import HERE

POOLS = "--corpus tiny --year 2019 --queries 20 --nested"
SYSTEMS = ("bm25", "lsa", "random", "rrf(bm25,lsa)")


@pytest.fixture(scope="module")
def board(root: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table, of three benchmarks on one of which two systems were not scored."""
    mdcr_json(root, *flags(f"eval {POOLS} --size 500,800 --samples 2 --model {','.join(SYSTEMS)}"))
    mdcr_json(root, *flags(f"eval {POOLS} --field Medicine --size 500 --samples 1 --model bm25,lsa"))
    mdcr_json(root, *flags(f"eval {POOLS} --size 500 --samples 1 --depth 20 --model bm25"))  # another depth
    tables: dict[str, list[dict[str, Any]]] = mdcr_json(root, "leaderboard")["tables"]
    return tables


def test_a_card_compares_with_bm25(root: Path, board: dict[str, Any]) -> None:
    tables = mdcr_json(root, "card", "lsa")["tables"]
    rows = tables["differences"]
    assert {row["fact"] for row in tables["facts"]} >= {"bytes", "papers per second"}
    of_lsa = {row["benchmark"]: row for row in rows if row["system"] == "lsa"}
    assert {row["minus"] for row in of_lsa.values()} == {"bm25"}
    fused = [row for row in rows if row["system"] == "rrf(bm25,lsa)"]
    assert len(fused) == 2
    values = {(row["benchmark"], row["system"]): 100 * row["value"] for row in board["benchmarks"]}
    for row in rows:
        change = values[row["benchmark"], row["system"]] - values[row["benchmark"], row["minus"]]
        assert float(row["difference"].split()[0]) == pytest.approx(change, abs=0.051)
    assert (root / "runs/reports/card-lsa/README.md").read_text().startswith("# lsa\n")
    assert "must be scored together with another system" in one_line_error(mdcr(root, "card", "minilm"))


def test_systems_with_some_of_the_samples_are_ranked_on_these(root: Path, board: Any, tmp_path: Path) -> None:
    other = shutil.copytree(root, tmp_path / "other")
    mdcr_json(other, *flags(f"eval {POOLS} --size 500 --samples 1 --model newest"))
    rows = [
        row for row in mdcr_json(other, "leaderboard")["tables"]["benchmarks"] if "of 2 samples" in row["benchmark"]
    ]
    assert {row["benchmark"].rpartition(", ")[2] for row in rows} == {"1 of 2 samples"}
    assert {row["system"] for row in rows} == {*SYSTEMS, "newest"}
    shown = mdcr_json(other, *flags("show table --depth 500 --samples 1 --size 500 --year 2019"))["rows"]
    of_sample = {row["system"]: row["value"] for row in shown if row["measure"] == "map" and row["field"] is None}
    assert {row["system"]: row["value"] for row in rows} == pytest.approx(of_sample, abs=1e-12)


def test_the_tables_are_printed(root: Path, board: Any) -> None:
    shown = mdcr(root, "leaderboard")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "rank" in shown.stdout


def test_values_are_those_of_the_tables_and_of_one_depth(root: Path, board: dict[str, list[dict[str, Any]]]) -> None:
    shown = mdcr_json(root, *flags("show table --depth 500"))["rows"]
    shown.sort(key=lambda row: len(row["samples"]))  # those of single samples first
    expected, found = (
        {(row["system"], row["size"], row["field"]): [row[name] for name in ("value", "low", "high")] for row in rows}
        for rows in ([row for row in shown if row["measure"] == "map"], board["benchmarks"])
    )
    assert len(found) == 10
    for key, values in found.items():
        assert values == pytest.approx(expected[key], abs=1e-12)
    for row in board["benchmarks"]:
        rivals = [other for other in board["benchmarks"] if other["benchmark"] == row["benchmark"]]
        assert row["rank"] == 1 + sum(other["value"] > row["value"] for other in rivals)
        assert row["low"] <= row["value"] <= row["high"]
        assert row["rank_low"] <= row["rank"] <= row["rank_high"]
    letters = {row["system"]: row["group"] for row in board["benchmarks"] if row["size"] == 800}
    assert not {*letters["random"]} & {*letters["bm25"]}


def test_systems_are_ranked_on_the_benchmarks_that_all_have(root: Path, board: dict[str, Any], tmp_path: Path) -> None:
    overall = {row["system"]: row for row in board["overall"]}
    assert overall.keys() == {*SYSTEMS}
    assert {row["benchmarks"] for row in overall.values()} == {2}
    for name, row in overall.items():
        ranks = [other["rank"] for other in board["benchmarks"] if other["system"] == name and other["field"] is None]
        assert row["mean_rank"] == pytest.approx(np.mean(ranks))
        assert row["mean_rank_low"] <= row["mean_rank"] <= row["mean_rank_high"]
    said = " ".join(mdcr(root, "leaderboard").stdout.split())
    assert "4 systems on 2 benchmarks that all of them have" in said
    assert "Not counted, as some lack them: tiny: Medicine 2019" in said
    of_medicine = mdcr_json(root, "leaderboard", "--benchmarks", "*MEDICINE*", "--output", str(tmp_path))["tables"]
    assert [row["system"] for row in of_medicine["overall"]] == ["lsa", "bm25"]
    for words, named in (
        (["--benchmarks", "tiny"], "--benchmarks 'tiny' is the name of none"),
        (["--measure", "ndcg@7"], "two systems must be scored by ndcg@7 on one benchmark"),
    ):
        assert named in one_line_error(mdcr(root, "leaderboard", *words))


def test_the_command_of_a_figure_makes_nothing_new(root: Path, board: dict[str, list[dict[str, Any]]]) -> None:
    for row in board["benchmarks"]:
        first, *words = shlex.split(row["command"])
        assert first == "mdcr"
        plan = mdcr_json(root, *words, "--dry-run")["plan"]
        assert plan
        assert all(step["present"] for step in plan), row["command"]


def test_the_page_has_filters_and_every_value_opens_its_record(root: Path, board: dict[str, Any]) -> None:
    page = (root / "runs/reports/leaderboard/index.html").read_text()
    assert len(page) < 600_000
    columns = ("kind", "benchmark", "field", "candidates", "year", "licence", r"parameters \(M\)")
    for name in columns:
        assert re.search(f'data-choose="[=≤≥]"><button type="button" data-sort>{name}<', page), name
    assert len(re.findall('data-record="', page)) == len(board["benchmarks"])
    assert "<h1>Leaderboard: citation recommendation, " in page
    assert "4 systems on 2 benchmarks</h2>" in page
    assert len(re.findall('<script type="text/plain" id="pool-', page)) == 3


def test_an_audit_of_our_export_equals_the_leaderboard(root: Path, board: dict[str, Any], tmp_path: Path) -> None:
    mdcr(root, *flags(f"export scores {POOLS} --size 800 --output {tmp_path}"))
    audited = mdcr_json(root, "audit", str(tmp_path), "--metric", "map", "--output", str(tmp_path / "report"))
    rows = {row["system"]: row for row in board["benchmarks"] if row["size"] == 800 and row["field"] is None}
    assert {row["system"] for row in audited["tables"]["board"]} == rows.keys() == {*SYSTEMS}
    for row in audited["tables"]["board"]:
        expected = rows[row["system"]]
        names = {"mean": "value", "mean_low": "low", "mean_high": "high", "letters": "group"}
        for name, theirs in (names | {name: name for name in ("rank", "rank_low", "rank_high")}).items():
            assert row[name] == expected[theirs], name


@pytest.fixture(scope="module")
def packed(root: Path, board: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "theirs.zip"
    assert mdcr(root, "submission", "lsa", "--output", str(path)).returncode == 0
    return path


def test_a_submission_counts_once_its_run_gives_its_measures(root: Path, packed: Path, tmp_path: Path) -> None:
    other = shutil.copytree(root, tmp_path / "other")
    rows = mdcr_json(other, "leaderboard", "--add", str(packed.parent))["tables"]
    theirs, ours = (
        {row["benchmark"]: row for row in rows["benchmarks"] if row["system"] == name} for name in ("theirs", "lsa")
    )
    assert len(theirs) == 3
    for name, row in theirs.items():
        assert (row["value"], row["rank"], row["group"]) == (
            ours[name]["value"],
            ours[name]["rank"],
            ours[name]["group"],
        )
        assert not row["rank"].is_integer()  # both share the mean of two ranks
    costs = {row["system"]: row for row in rows["overall"]}
    assert [costs["theirs"][name] for name in ("parameters", "trained_on")] == [None, "unknown"]
    assert costs["lsa"]["parameters"] == 0


Change = Callable[[dict[str, Any], dict[str, bytes]], Any]
BOMB = b"\n" * (2**28 + 1)
"""What compresses to a few hundred kilobytes, and is a byte more than a part may hold."""


def rewritten(packed: Path, path: Path, change: Change) -> Path:
    """Write a submission with a changed manifest or parts."""
    with zipfile.ZipFile(packed) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(parts.pop("manifest.json"))
    change(manifest, parts)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as other:
        for name, data in ({"manifest.json": json.dumps(manifest).encode()} | parts).items():
            other.writestr(name, data)
    return path


def bomb(manifest: dict[str, Any], parts: dict[str, bytes]) -> None:
    """Have a run decompress to a byte more than it may hold, with the digest of what is packed."""
    parts["0.trec.gz"] = gzip.compress(gzip.decompress(parts["0.trec.gz"]) + BOMB, 1)
    manifest["runs"][0]["sha256"] = hashlib.sha256(parts["0.trec.gz"]).hexdigest()


def renamed(_: dict[str, Any], parts: dict[str, bytes]) -> None:
    parts["../0.trec.gz"] = parts.pop("0.trec.gz")


def twice(manifest: dict[str, Any], parts: dict[str, bytes]) -> None:
    parts[f"{len(manifest['runs'])}.trec.gz"] = parts["0.trec.gz"]
    manifest["runs"].append(manifest["runs"][0])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda manifest, _: manifest["runs"][0].update(sha256="0" * 64), "its digest"),
        (lambda manifest, _: manifest["runs"][1]["scores"]["map"].reverse(), "must have map as its run"),
        (lambda manifest, _: manifest["runs"][0].update(pool="0" * 64), "which is not in the workspace"),
        (lambda manifest, _: manifest["runs"][0].update(depth=-1), "must be a submission"),
        (lambda manifest, _: manifest["runs"][0]["scores"].update({"m" * 50: []}), "measure"),
        (lambda manifest, _: manifest["runs"].append(manifest["runs"][0]), "must hold its manifest and runs"),
        (lambda _, parts: parts.update({"../../more.txt": b"more"}), "must hold its manifest and runs"),
        (lambda _, parts: parts.update({"0.trec.gz": BOMB}), "must hold at most 256 MiB"),
        (lambda manifest, _: manifest.update(code="a" * len(BOMB)), "must hold at most 256 MiB"),
        (renamed, "must hold its manifest and runs"),
        (twice, "must rank a pool once"),
        (bomb, "must hold at most 256 MiB"),
    ],
)
def test_a_submission_that_is_not_what_it_says_is_refused(
    root: Path, packed: Path, tmp_path: Path, change: Change, named: str
) -> None:
    before, outside = scores_of(root), {*tmp_path.parent.iterdir(), *root.iterdir()}
    path = rewritten(packed, tmp_path / "changed.zip", change)
    assert path.stat().st_size < 2**22
    assert named in one_line_error(mdcr(root, "leaderboard", "--add", str(path)))
    assert scores_of(root) == before
    assert not [*(root / "runs/submissions").iterdir()]
    assert {*tmp_path.parent.iterdir(), *root.iterdir()} == outside


def test_a_file_that_is_damaged_or_named_like_another_system_is_refused(
    root: Path, packed: Path, tmp_path: Path
) -> None:
    whole = packed.read_bytes()
    for name, content, named in (
        ("cut", whole[:-100], "must be a submission"),
        ("bm25", whole, "must have the name of a new system"),
        ("..", whole, "must have the name of a new system"),
        ("a system", whole, "must have the name of a new system"),
    ):
        path = tmp_path / f"{name}.zip"
        path.write_bytes(content)
        assert named in one_line_error(mdcr(root, "leaderboard", "--add", str(path))), name
    with zipfile.ZipFile(path := tmp_path / "double.zip", "w") as archive, zipfile.ZipFile(packed) as parts:
        for name in [*parts.namelist(), "0.trec.gz"]:
            with warnings.catch_warnings(action="ignore"):
                archive.writestr(name, parts.read(name))
    assert "must hold its manifest and runs" in one_line_error(mdcr(root, "leaderboard", "--add", str(path)))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("name", ["manifest.json", "0.trec.gz"])
def test_a_part_that_decompresses_without_bound_is_refused(
    root: Path, packed: Path, tmp_path: Path, method: int, name: str
) -> None:
    """Such parts are not even begun: of a few kilobytes, they take gigabytes."""
    with zipfile.ZipFile(path := tmp_path / "bomb.zip", "w") as archive, zipfile.ZipFile(packed) as parts:
        for part in parts.namelist():
            content = BOMB[: 2**22] if part == name else parts.read(part)
            archive.writestr(part, content, method if part == name else zipfile.ZIP_DEFLATED)
    error = one_line_error(mdcr(root, "leaderboard", "--add", str(path)))
    assert f"{name} must be stored or deflated" in error


def test_every_flipped_byte_is_a_line_or_changes_nothing(root: Path, packed: Path, tmp_path: Path) -> None:
    """Bytes of headers, of the directory and of content; what is not read may differ."""
    whole, workspace = packed.read_bytes(), Workspace(Runner(root, HERE))
    places = {*range(30), *range(len(whole) - 90, len(whole)), *range(100, len(whole), len(whole) // 50)}
    refused = 0
    for place in sorted(places):
        path = tmp_path / f"flip-{place}.zip"
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x11]) + whole[place + 1 :])
        try:
            with zipfile.ZipFile(path) as archive:
                same = all(archive.read(name) == part for name, part in contents(packed).items())
        except Exception:  # noqa: BLE001 (whatever zipfile raises)
            same = False
        if not same:
            with pytest.raises(InputError):
                submissions.add(workspace, path)
            refused += 1
    assert refused > len(places) / 2
    assert not [*(root / "runs/submissions").iterdir()]


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_workspace_without_two_systems_is_one_line(tmp_path: Path) -> None:
    assert "two systems must be scored by map on one benchmark" in one_line_error(mdcr(tmp_path, "leaderboard"))


def test_ranks_in_a_block_are_among_its_systems() -> None:
    similar = [["b"], ["a", "c"], ["b", "d"], ["c"]]
    systems = pl.DataFrame({"system": [*"abcd"], "value": [0.4, 0.3, 0.2, 0.1], "similar": similar, "measure": "map"})
    assert study._ranks_among([*"cad"], systems).tolist() == [[2, 1, 3], [2, 1, 2], [3, 1, 3]]
    lower_first = systems.with_columns(measure=pl.lit("map"), value=-pl.col("value"))
    assert study._ranks_among(["a", "d"], lower_first).tolist() == [[2, 1], [2, 1], [2, 1]]


def test_clean_values_are_those_of_the_queries_that_training_data_lack(root: Path, board: Any, tmp_path: Path) -> None:
    workspace, training = open_workspace(root), tmp_path / "seen.txt"
    scores = workspace.scores(corpus="tiny", year=2019, size=500, depth=500).filter(
        pl.col("field").is_null(), measure="map"
    )
    seen = scores["query_id"].unique().sort()[:7]
    training.write_text("\n".join(seen))
    rows = mdcr_json(root, "leaderboard", "--training", str(training))["tables"]["benchmarks"]
    found = {row["system"]: row for row in rows if row["field"] is None and row["size"] == 500}
    for (system,), of_system in scores.filter(~pl.col("query_id").is_in(seen.implode())).group_by("system"):
        row, values = found[str(system)], of_system.group_by("query_id").agg(pl.mean("value"))
        assert row["clean_queries"] == len(values) == 13
        assert row["clean"] == pytest.approx(values["value"].mean(), abs=1e-12)
        assert row["clean_low"] < row["clean"] < row["clean_high"]
    assert {row["clean_queries"] for row in board["benchmarks"]} == {None}
