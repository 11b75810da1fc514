"""Malformed model folders: each is refused with one line and exit code 2, before anything is embedded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.encode.tiny import save_bert, save_cross_encoder
from tests.faults.models import FOLDERS, Malformed, malformed
from tests.faults.tally import Tally, share

ROWS = share(list(malformed()), 3)
EVAL = ("eval", *flags("--size all --queries 5 --samples 1 --device cpu --workers 1 --measures map --json --model"))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    for name, kind in FOLDERS.items():
        kind.save(folder / name)
    return folder


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_malformed_folder_is_refused(row: Malformed, good: Path, tiny: Path, tmp_path: Path, tally: Tally) -> None:
    folder = shutil.copytree(good / row.base, tmp_path / "model")
    row.change(folder)
    tally.count("tried")
    stores = set(tiny.glob("indexes/vectors/*/*/manifest.json"))
    one_line_error(mdcr(tiny, *EVAL, FOLDERS[row.base].system.format(folder)))
    assert set(tiny.glob("indexes/vectors/*/*/manifest.json")) == stores
    tally.count("refused")


@pytest.mark.parametrize("name", FOLDERS)
def test_a_good_folder_is_ranked_by(name: str, good: Path, tiny: Path) -> None:
    rows = mdcr_json(tiny, *EVAL[:-2], "--model", FOLDERS[name].system.format(good / name))["rows"]
    assert any(row["measure"] == "map" for row in rows)


@pytest.mark.parametrize(("typed", "settings"), [("bert", "tokenizer_config.json"), ("mine", "config.json")])
@pytest.mark.parametrize("system", ["{}", "sentences:encoder={}", "rerank(bm25,cross:{},3)"])
def test_code_of_a_folder_never_runs(typed: str, settings: str, system: str, tiny: Path, tmp_path: Path) -> None:
    folder = (save_cross_encoder if "cross" in system else save_bert)(tmp_path / "model")
    mark = tmp_path / "mark"
    (folder / "code.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    code = {"auto_map": dict.fromkeys(("AutoConfig", "AutoModel", "AutoTokenizer"), "code.C")}
    for path, values in (("config.json", {"model_type": typed}), (settings, code)):
        (folder / path).write_text(json.dumps(json.loads((folder / path).read_text()) | values))
    assert "needs code from its folder" in one_line_error(mdcr(tiny, *EVAL, system.format(folder)))
    assert not mark.exists()
