"""Labels of systems, and the same weights at two paths."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipeline.core.artifact import published
from pipeline.core.errors import InputError
from pipeline.core.workspace import RANKINGS, SCORES, VECTORS, WEIGHTS
from pipeline.encode import registry
from pipeline.stages.systems import encoder_names, parse_systems, stored_names
from tests.cli.run import flags, mdcr, mdcr_json
from tests.encode.tiny import save_adapter, save_bert, save_cross_encoder, save_in_cache

POOL = flags("--size 900 --queries 20 --samples 1 --measures map")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    one = save_bert(tmp_path_factory.mktemp("models") / "one")
    return one, shutil.copytree(one, one.with_name("two"))


def test_labels_name_systems_and_parts() -> None:
    mine, fused, sum_ = parse_systems("mine=lsa:dimension=8,rrf(bm25,mine=lsa:dimension=8),both=wsum(bm25,lsa)")
    assert (mine.name, fused.name, sum_.name) == ("mine", "rrf(bm25,mine)", "both")
    assert mine.key == "lsa:dimension=8"  # type: ignore[union-attr]
    assert encoder_names("mine=scincl,x=rrf(bm25,y=specter)") == ["scincl", "specter"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mine=lsa,mine=lsa:dimension=8", "the label mine must name one system, got several"),
        ("scincl=lsa", "the label scincl is the name of another system"),
        ("bm25=lsa", "the label bm25 is the name of another system"),
        ("mine=bm25:k1=1.2,b=0.75", "must label an encoder or a fusion; BM25 is named by its parameters"),
        ("mean(mine=/a,/b)", "must name its encoders without labels. Label the whole: mine=mean"),
        ("rrf(a=lsa,b=lsa)", "names a system twice"),
        ("mine=lsaa", "there is no model 'lsaa'. Did you mean 'lsa'"),
        ("mine=", "there is no model 'mine='"),
    ],
)
def test_labels_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=".*") as raised:
        parse_systems(text)
    assert message in str(raised.value)


def test_the_same_weights_at_two_paths_are_one_encoder(root: Path, folders: tuple[Path, Path]) -> None:
    one, two = folders
    fused = [f"rrf(bm25,{each}),wsum(bm25,{each})" for each in (f"a={one}", f"b={two}")]
    for model in (f"first={one}", f"second={two}", str(two), *fused):
        mdcr_json(root, "eval", *POOL, "--model", model)
    (store,) = (root / VECTORS).iterdir()
    assert "-local-" in store.name
    assert len({ranking.id for ranking in published(root / RANKINGS)}) == len(list(published(root / RANKINGS)))
    assert sum("-local-" in "-" + ranking.name for ranking in published(root / RANKINGS)) == 2  # test and validation
    assert len(list(published(root / WEIGHTS))) == 1
    systems = {score.manifest.config["system"] for score in published(root / SCORES)}
    assert systems >= {"first", "second", "two", "rrf(bm25,a)", "rrf(bm25,b)", "wsum(bm25,a)", "wsum(bm25,b)"}
    rows = mdcr_json(root, "eval", *POOL, "--model", f"first={one},second={two}")["rows"]
    assert {row["system"]: row["value"] for row in rows if row["measure"] == "map"}.keys() == {"first", "second"}
    assert len({row["value"] for row in rows if row["measure"] == "map"}) == 1
    chosen = mdcr_json(root, "show", "--model", f"first={one},rrf(bm25,a={one})")["rows"]
    assert {row["system"] for row in chosen} == {"first", "rrf(bm25,a)"}
    shown = mdcr(root, "show", "vectors", "--json").stdout
    assert "cosine 1.0" in shown  # the model is found again by the path that was given


def test_names_of_folders_hold_no_path(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = save_adapter(tmp_path / "adapter", folders[0])
    other = shutil.copytree(adapter, tmp_path / "other")
    for pair in (
        folders,
        [f"{folder}:compute=bfloat16" for folder in folders],
        [f"{folders[0]}:adapter={each}" for each in (adapter, other)],
        [f"mean({folder},{save_bert(tmp_path / 'third', seed=4)})" for folder in folders],
    ):
        one, two = (registry.resolve(str(each)) for each in pair)
        assert one.name != two.name
        assert (one.key, one.slug, one.base_slug, one.spec) == (two.key, two.slug, two.base_slug, two.spec)
        assert str(tmp_path)[1:] not in one.key
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    save_in_cache(tmp_path / "cache", "malteos/scincl", "a" * 40)
    assert registry.resolve("hf:malteos/scincl").slug == registry.resolve("scincl").slug == "scincl"


def test_a_path_is_shown_by_the_name_of_its_folder(folders: tuple[Path, Path], tmp_path: Path) -> None:
    one, adapter = folders[0], save_adapter(tmp_path / "deep" / "adapter", folders[0])
    cross = save_cross_encoder(tmp_path / "reranker")
    named = {
        str(one): "one",
        f"{one}:compute=bfloat16": "one:compute=bfloat16",
        f"{one}:adapter={adapter}": "one:adapter=adapter",
        f"mean({one},{save_bert(tmp_path / 'third', seed=4)})": "mean(one,third)",
        f"sentences:encoder={one}": "sentences:encoder=one",
        f"rrf(bm25,{one})": "rrf(bm25,one)",
        f"rerank({one},cross:{cross},3)": "rerank(one,cross:reranker,3)",
        str(shutil.copytree(one, tmp_path / "models" / "scincl")): "models/scincl",
    }
    for text, name in named.items():
        (system,) = parse_systems(text)
        assert system.name == name == stored_names(text)[0]
        assert stored_names(name) == (name,)
    with pytest.raises(InputError, match="the name one must be of one system, got several. Label them"):
        parse_systems(f"{one},{save_bert(tmp_path / 'one', seed=2)}")


def test_names_of_the_hub_and_of_models_stay() -> None:
    names = ("scincl", "hf:org/name", "cross:org/name", "specter2:adapter=allenai/specter2", "bm25:k1=1.2,b=0.7")
    assert tuple(map(registry.shown, names)) == names
    assert registry.shown("vectors:/data/theirs.npy:missing=skip,queries=/data/q.npy") == (
        "vectors:theirs.npy:missing=skip,queries=q.npy"
    )
