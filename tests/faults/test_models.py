"""Malformed model folders: each is refused with one line and exit code 2, before anything is embedded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.encode.tiny import save_bert, save_cross_encoder
from tests.faults.models import FOLDERS, Malformed, malformed
from tests.faults.tally import Tally, share

ROWS = share(list(malformed()), 3)
EVAL = ("eval", *flags("--size all --queries 5 --samples 1 --device cpu --workers 1 --measures map --json --model"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    mdcr_json(root, *flags("corpus --source synthetic --papers 500 --seed 5 --corpus tiny --workers 1"))
    return root


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    for name, kind in FOLDERS.items():
        kind.save(folder / name)
    return folder


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_malformed_folder_is_refused(row: Malformed, good: Path, root: Path, tmp_path: Path, tally: Tally) -> None:
    folder = shutil.copytree(good / row.base, tmp_path / "model")
    row.change(folder)
    tally.count("tried")
    stores = set(root.glob("indexes/vectors/*/*/manifest.json"))
    one_line_error(mdcr(root, *EVAL, FOLDERS[row.base].system.format(folder)))
    assert set(root.glob("indexes/vectors/*/*/manifest.json")) == stores
    tally.count("refused")


@pytest.mark.parametrize("name", FOLDERS)
def test_a_good_folder_is_ranked_by(name: str, good: Path, root: Path) -> None:
    rows = mdcr_json(root, *EVAL[:-2], "--model", FOLDERS[name].system.format(good / name))["rows"]
    assert any(row["measure"] == "map" for row in rows)


@pytest.mark.parametrize("typed", ["bert", "mine"])
@pytest.mark.parametrize(
    ("system", "save"), [("{}", save_bert), ("sentences:encoder={}", save_bert), ("cross", save_cross_encoder)]
)
@pytest.mark.parametrize("settings", ["config.json", "tokenizer_config.json"])
def test_code_of_a_folder_never_runs(
    typed: str, system: str, save: Callable[[Path], Path], settings: str, root: Path, tmp_path: Path
) -> None:
    folder, mark = save(tmp_path / "model"), tmp_path / "mark"
    (folder / "code.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    code = {"auto_map": dict.fromkeys(("AutoConfig", "AutoModel", "AutoTokenizer"), "code.C")}
    for path, values in (("config.json", {"model_type": typed}), (settings, code)):
        (folder / path).write_text(json.dumps(json.loads((folder / path).read_text()) | values))
    asked = f"rerank(bm25,cross:{folder},3)" if system == "cross" else system.format(folder)
    line = one_line_error(mdcr(root, *EVAL, asked))
    assert "needs code from its folder" in line
    assert not mark.exists()
