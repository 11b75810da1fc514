"""Releases through the command: fetched, built, described, and taken to a table of results."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.corpus.test_join import random_tables
from tests.sources.server import KEY, Datasets, serving


def test_s2ag_is_fetched_built_and_described(tmp_path: Path) -> None:
    tables, _ = random_tables(300, seed=21)
    for paper in tables["papers"][:40]:
        paper["title"] = "The same title in full length"
    lines = {name: [json.dumps(record).encode() for record in rows] for name, rows in tables.items()}
    held = Datasets()
    held.releases["2026-09-17"] = {
        name: {f"{name}_{n}.gz": gzip.compress(b"\n".join(rows[n::2])) for n in range(2)}
        for name, rows in lines.items()
    }
    with serving(held) as endpoint:
        fetch = ["fetch", "s2ag", "--endpoint", endpoint]
        assert "S2_API_KEY or with --api-key-file" in one_line_error(mdcr(tmp_path, *fetch, env={"S2_API_KEY": ""}))
        plan = mdcr(tmp_path, *fetch, "--dry-run", env={"S2_API_KEY": f" {KEY}\n"})
        assert plan.stdout.splitlines() == [f"{name}/{name}_{n}.gz" for name in lines for n in range(2)]
        (tmp_path / "key.txt").write_text(f"{KEY}\n")
        of_file = ("--api-key-file", str(tmp_path / "key.txt"))
        trial = mdcr_json(tmp_path, *fetch, *of_file, "--first", "1", "--output", str(tmp_path / "trial"))
        assert sorted(trial["files"]) == sorted(f"{name}/{name}_0.gz" for name in lines)
        result = mdcr(tmp_path, *fetch, env={"S2_API_KEY": KEY})
    folder = tmp_path / "corpora/releases/s2ag-2026-09-17"
    assert result.stdout.strip() == str(folder)
    assert KEY not in result.stderr + plan.stderr

    build = ["corpus", "--source", "s2ag", "--input", str(folder)]
    whole = mdcr_json(tmp_path, *build)
    assert whole["counts"]["kept"] == 300
    merged = mdcr_json(tmp_path, *build, *flags("--corpus merged --duplicates merge --memory 512M --workers 2"))
    extra = mdcr_json(tmp_path, *flags("show corpus --corpus s2ag"))["duplicates"]["same_title_and_year"][
        "extra_papers"
    ]
    assert merged["counts"]["dropped"] == {"duplicate_doi": 0, "duplicate_title_and_year": extra}
    assert extra > 10
    shown = mdcr(tmp_path, *flags("show corpus --corpus merged --output"), str(tmp_path / "figures"))
    assert f"papers {merged['counts']['kept']:>34,}" in shown.stdout
    assert len(list((tmp_path / "figures").glob("merged-*.svg"))) == 3
    listed = mdcr_json(tmp_path, *flags("show corpora"))["corpora"]
    assert [(row["corpus"], row["papers"]) for row in listed] == [("merged", merged["counts"]["kept"]), ("s2ag", 300)]
    pools = mdcr_json(tmp_path, *flags("pool --corpus merged --year 2019 --size all --queries 5 --samples 1"))["pools"]
    assert pools[0]["counts"]["queries"] == 5


def test_a_key_on_the_command_line_is_refused_and_none_is_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes("kéy-of-mine".encode("latin-1"))
    for words in (
        ["--api-key", "kéy-of-mine"],
        ["--api-key-file", "key-of-mine"],
        ["--api-key-file", f"{tmp_path}/key"],
    ):
        line = one_line_error(mdcr(tmp_path, "fetch", "s2ag", "--endpoint", "http://127.0.0.1:9", *words))
        assert "y-of-mine" not in line
        assert "--api-key-file" in line
    line = one_line_error(mdcr(tmp_path, "fetch", "s2ag", env={"S2_API_KEY": "kéy-of-mine"}))
    assert "API key holds a character" in line
    assert "of-mine" not in line


def test_the_tables_of_fields_are_printed(tmp_path: Path) -> None:
    rows = mdcr_json(tmp_path, *flags("show fields"))["fields"]
    assert {"subject": "Neuroscience", "counts as": "Biology", "of": "OpenAlex field (primary topic)"} in rows
    assert len(rows) == 19 + 4 + 19 + 26 + 6
