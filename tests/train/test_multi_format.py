"""The study ``multi_format`` on a tiny BERT: the grid, resuming, and the papers' tables with published figures."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.encode.tiny import save_bert, words
from tests.studies.scirepeval.published import write

TINY = {
    "architectures": ["cls", "ctrl", "adapters", "pals", "fusion", "adapters+ctrl"],
    "ablations": ["regression"],
    "seeds": [1],
    "tasks": ["fos", "cite_count"],
    "evaluated": ["cite_count", "scidocs_cite"],
    "published": {"tiny": "specter2_base"},
    "resamples": 10,
}


def settings(**changes: object) -> list[str]:
    """Return the options of a small run."""
    values = {name: json.dumps(value) for name, value in {**TINY, **changes}.items() if name != "published"}
    pairs = [f"{name}={value}" for name, value in values.items()]
    small = "epochs=1,batch=8,micro_batch=4,examples=8,max_length=16,warmup=2,learning_rate=1e-3,schedule='linear'"
    rest = "loss='triplet',margin=1.0,scale=20.0,head_dropout=0.0,clip=0.0,precision='float32',checkpoints=1,patience=0"
    pairs += [f"training={{{small},{rest}}}", "changes={}", "published={tiny='specter2_base'}"]
    return [word for pair in pairs for word in ("--set", pair)]


def training_sets(folder: Path) -> Path:
    """Add training sets of two tasks to a folder of made-up data."""
    labels = (["a"], ["b"], ["a", "b"])
    for task, name in {"fos": "labels_text", "cite_count": "log_citations"}.items():
        rows = [
            {"doc_id": str(n), "title": words(3, n % 3), "abstract": words(9, n)}
            | {name: labels[n % 3] if task == "fos" else float(n % 2)}
            for n in range(30)
        ]
        place = folder / "scirepeval" / task
        place.mkdir(exist_ok=True)
        (place / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return training_sets(write(tmp_path_factory.mktemp("files") / "in", ("cite_count", "scidocs_cite")))


def test_the_grid_is_trained_evaluated_and_shared(tmp_path: Path, folder: Path) -> None:
    base = f"tiny={save_bert(tmp_path / 'bert', positions=64)}"
    words_of = [*flags("study multi_format --input"), str(folder), "--model", base]
    planned = mdcr(tmp_path, *words_of, *settings(), "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert "6 trainings, 0.0 GPU hours at 200 texts per second (assumed)" in planned.stderr
    tables = mdcr_json(tmp_path, *words_of, *settings())["tables"]
    assert len(trained(tmp_path)) == 6
    values = {row["architecture"]: row["value"] for row in tables["averages"] if row["figure"] == "average"}
    assert len(values) == 1 + 6
    assert len({round(value, 6) for value in values.values()}) > 4
    costs = {row["architecture"]: row for row in tables["costs"]}
    assert costs["ctrl"]["parameters"] == 32
    assert costs["adapters"]["parameters"] < costs["fusion"]["parameters"]
    assert costs["adapters+ctrl"]["parameters"] == 32 + costs["adapters"]["parameters"]
    assert {row["formats"] for row in tables["ablations"]} == {"regression", "all"}
    printed = {(row["group"], row["format"], row["vectors"]): row["published"] for row in tables["scirepeval-codes"]}
    assert printed["in-train", "search", "query"] == 78.5  # of SPECTER2
    report = (tmp_path / "runs/reports/multi_format/averages.md").read_text()
    assert "tiny, Adapters + MTL CTRL" in report
    formats = tomllib.loads((tmp_path / "runs/reports/multi_format/formats.toml").read_text())
    assert formats["tiny-pals-all-1"]["query"].endswith(":pals=[QRY]")

    made = trained(tmp_path)
    twice = mdcr_json(tmp_path, *words_of, *settings(seeds=[1, 2], architectures=["cls"], ablations=[]))["tables"]
    assert (len(made.items() & trained(tmp_path).items()), len(trained(tmp_path))) == (6, 7)
    assert [row["seed"] for row in twice["averages"] if row["figure"] == "average"] == [0, 1, 2]
    assert "±" in (tmp_path / "runs/reports/multi_format/averages.md").read_text()


def trained(root: Path) -> dict[Path, int]:
    """Return when each model was made, by its manifest."""
    return {path: path.stat().st_mtime_ns for path in root.glob("runs/models/*/manifest.json")}


def test_a_fusion_needs_adapters(tmp_path: Path, folder: Path) -> None:
    options = settings(architectures=["fusion"])
    words_of = [*flags("study multi_format --input"), str(folder), "--model", f"tiny={save_bert(tmp_path / 'bert')}"]
    said = one_line_error(mdcr(tmp_path, *words_of, *options, "--dry-run"))
    assert "fusion must have adapters among the architectures" in said


def test_recipes_are_complete() -> None:
    rows = mdcr_json(Path(), *flags("study multi_format --recipe multi_format_paper --input . --list"))["tasks"]
    assert len(rows) == 4 * 5 * 5 + 10
