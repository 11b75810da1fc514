"""The same weights at two paths are one encoder, under whatever labels."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipeline.core.artifact import published
from pipeline.core.workspace import RANKINGS, SCORES, VECTORS
from pipeline.encode import registry
from tests.cli.run import flags, mdcr_json
from tests.encode.tiny import save_bert, save_in_cache

POOL = flags("--size 900 --queries 20 --samples 1 --measures map")


def test_the_same_weights_at_two_paths_are_one_encoder(root: Path, tmp_path: Path) -> None:
    one = save_bert(tmp_path / "one", positions=32)
    two = shutil.copytree(one, tmp_path / "two")
    fused = (f"rrf(bm25,{part})" for part in (f"a={one}", f"b={two}"))
    for model in (f"first={one}", f"second={two}", str(two), *fused):
        mdcr_json(root, "eval", *POOL, "--model", model)
    (store,) = (root / VECTORS).iterdir()
    assert "-local-" in store.name
    rankings = [ranking.name for ranking in published(root / RANKINGS)]
    assert sum("-local-" in f"-{name}" for name in rankings) == 1
    systems = {score.manifest.config["system"] for score in published(root / SCORES)}
    assert systems >= {"first", "second", "two", "rrf(bm25,a)", "rrf(bm25,b)"}
    rows = mdcr_json(root, "eval", *POOL, "--model", f"first={one},second={two}")["rows"]
    value = {row["system"]: row["value"] for row in rows if row["measure"] == "map"}
    assert value.keys() == {"first", "second"}
    assert value["first"] == value["second"]
    chosen = mdcr_json(root, "show", "--model", f"first={one},rrf(bm25,a={one})")["rows"]
    assert {row["system"] for row in chosen} == {"first", "rrf(bm25,a)"}
    (shown,) = mdcr_json(root, "show", "vectors")["vectors"]
    assert shown["model"] in (str(one), str(two))


def test_a_model_of_the_hub_is_the_one_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    save_in_cache(tmp_path / "cache", "malteos/scincl", "a" * 40)
    assert registry.resolve("hf:malteos/scincl").slug == registry.resolve("scincl").slug == "scincl"
