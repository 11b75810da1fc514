"""Names of systems: one grammar, printed as it is read, and stored with scores as data."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.core.artifact import published
from pipeline.core.config import canonical
from pipeline.core.errors import InputError
from pipeline.core.workspace import SCORES
from pipeline.encode import kinds, known, registry
from pipeline.encode.names import Name, parse, parse_one, walk
from pipeline.stages.systems import (
    Reranker,
    display_name,
    encoders,
    fused_names,
    parse_systems,
    stored_names,
    stored_system,
)
from tests.cli.run import flags, mdcr, mdcr_json
from tests.encode.tiny import save_adapter, save_bert, save_cross_encoder

BASES = (
    "bm25",
    "bm25:tuned",
    "random",
    "lsa",
    "scincl",
    "hf:org/name",
    "/models/a(b,c)",
    "vectors:/data/x.npy",
    "cross:org/x",
)
KEYS, VALUES = st.sampled_from(("k1", "b", "dimension", "storage")), st.sampled_from(("0.5", "float16", "a+b", ""))
OPTIONS = st.lists(st.tuples(KEYS, VALUES), max_size=3).map(tuple)
LABELS = st.sampled_from(("", "", "mine", "x.y-z+1"))
PLAIN = st.builds(Name, st.sampled_from(BASES), st.none(), OPTIONS, LABELS) | st.sampled_from((Name("100"), Name("7")))
NAMES = st.recursive(
    PLAIN,
    lambda inside: st.builds(
        Name,
        st.sampled_from(("rrf", "rerank", "mean", "ot")),
        st.lists(inside, max_size=3).map(tuple),
        OPTIONS,
        LABELS,
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two models of the same weights, another one, an adapter and a cross-encoder."""
    folder = tmp_path_factory.mktemp("models")
    save_bert(folder / "one")
    shutil.copytree(folder / "one", folder / "two")
    shutil.copytree(folder / "one", folder / "hub" / "scincl")
    save_bert(folder / "third", seed=4)
    save_bert(folder / "other" / "one", seed=2)
    save_adapter(folder / "adapter", folder / "one")
    save_cross_encoder(folder / "cross")
    return folder


@settings(suppress_health_check=[HealthCheck.too_slow])  # of a busy machine
@given(st.lists(NAMES, max_size=4))
def test_printing_and_parsing_are_inverse(names: list[Name]) -> None:
    assert parse(", ".join(map(str, names))) == names
    assert [Name.of(json.loads(json.dumps(canonical(name)))) for name in names] == names


RANKED_ALONE = st.sampled_from(
    ("bm25", "bm25:tuned", "bm25:k1=1.20,b=0.75", "newest", "random:seed=7", "random:seed=13", "lsa", "lsa:dimension=8")
)
COMBINED = st.builds(
    lambda parts: f"rrf({','.join(parts)})",
    st.lists(RANKED_ALONE, min_size=2, max_size=4, unique_by=lambda text: text.replace(":seed=13", "")),
)


@given(RANKED_ALONE | COMBINED | COMBINED.map(lambda text: f"mine={text}"))
def test_a_system_is_printed_as_it_is_parsed(text: str) -> None:
    (system,) = parse_systems(text)
    assert parse_systems(str(system.title)) == [system]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("lsa:dimension=8 ,storage = float16,m=lsa,b=bm25", ["lsa:dimension=8,storage=float16", "m=lsa", "b=bm25"]),
        ("mine=/a/b:compute=bfloat16,storage=float16,lsa", ["mine=/a/b:compute=bfloat16,storage=float16", "lsa"]),
        ("bm25:k1=1,b=0.5,x=hf:a/b,y=rrf(bm25,z=/c)", ["bm25:k1=1,b=0.5", "x=hf:a/b", "y=rrf(bm25,z=/c)"]),
        ("rrf(bm25:k1=2,b=0.5,lsa), mean(a:k=1,l=mean(c))", ["rrf(bm25:k1=2,b=0.5,lsa)", "mean(a:k=1,l=mean(c))"]),
        ("specter2:compute=bfloat16,adapter=/a/b", ["specter2:compute=bfloat16,adapter=/a/b"]),
    ],
)
def test_systems_with_labels_are_split(text: str, names: list[str]) -> None:
    assert list(map(str, parse(text))) == names


def test_options_end_where_a_label_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in {place for kind in kinds.KINDS.values() for place in kind.locators}:
        assert len(parse(f"scincl:storage=float16,{key}=refs/pr/1")) == 1
        assert len(parse(f"scincl,{key}=refs/pr/1")) == 2
    (tmp_path / "a=b:c=d").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse("./a=b:c=d") == [Name("./a=b:c=d")]
    assert parse("a=b:c=d") == [Name("b", options=(("c", "d"),), label="a")]
    assert parse_one("hf:a/b:compute=float16,template=x/y").options == (("compute", "float16"), ("template", "x/y"))
    (mean,) = parse("mean(scincl:compute=bfloat16,adapter=org/x,specter)")
    assert list(map(str, mean.parts or ())) == ["scincl:compute=bfloat16,adapter=org/x", "specter"]
    assert known.published(str(mean)) == known.published("mean(lsa:dimension=8,storage=float16,lsa)") == {}
    with pytest.raises(InputError, match="'lsa,bm25' must be one name, got several"):
        parse_one("lsa,bm25")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rrf(bm25,lsa", "'rrf(bm25,lsa' must end with its parenthesis"),
        ("rrf(bm25,lsa):depth=3", "rrf(...) takes no options, got depth"),
        ("rff(lsa,bm25)", "combines no systems. Did you mean 'rrf'?"),
        ("bm25:tunned", "is not a parameter. Did you mean 'tuned'?"),
        ("bm25:b=2", "'bm25:b=2' is out of range"),
        ("bm25:k2=1", "BM25 has no parameter 'k2'. Choose one of: k1, b"),
        (",", "no system was named"),
        ("/nonexistent", "nonexistent"),
        ("rrf(bm25)", "fuses 1 systems"),
        ("rrf(lsa,rrf(bm25,lsa))", "fuses what is fused already"),
        ("lsa, x = rrf(bm25, a=mean(minilm, specterr))", "'specterr'"),
        ("mine=lsa,mine=lsa:dimension=8", "the label mine must name one system, got several"),
        ("bm25=lsa", "the label bm25 is the name of another system"),
        ("random:seed=x", "'random:seed=x' is no baseline"),
        ("mine=random", "must label an encoder or a fusion; random has a name of its own"),
        ("mean(mine=/a,/b)", "must name its encoders without labels. Label the whole: mine=mean"),
        ("{}/one,{}/other/one", "the name one must be of one system, got several. Label them"),
        ("rerank(bm25,lsa)", "must name a system, a reranker and a number"),
        ("rerank(bm25,cross:{}/cross,0)", "must rerank a whole number of entries, got '0'"),
        ("rerank(bm25,cross:nowhere,10)", "no model folder 'cross:nowhere'"),
        ("rerank(bm25,cross:{}/cross:distance=l2,10)", "has no setting 'distance'"),
        ("cross:{}/cross", "has no vectors"),
        ("rerank(rerank(bm25,cross:{}/cross,9),cross:{}/cross,10)", "is reranked already"),
        ("run:/nowhere/bm25.trec", "must not have the name of a system"),
        ("run:a/x.trec,run:b/x.trec", "runs must have different names, got 2 named 'x'"),
    ],
)
def test_names_that_are_no_system(models: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_systems(text.replace("{}", str(models)))
    assert message in str(error.value)


def test_questions_about_names() -> None:
    assert stored_names("bm25:k1=1.20,b=0.750,rrf(bm25:b=0.75,mine=lsa)") == (
        "bm25:k1=1.2,b=0.75", "rrf(bm25:k1=0.9,b=0.75,mine)",
    )  # fmt: skip
    text = "lsa,again=rerank(rrf(bm25:tuned,lsa),cross:a/b,3)"
    assert [name.base for name in walk(text)] == ["lsa", "rerank", "rrf", "bm25:tuned", "lsa", "cross:a/b", "3"]
    assert fused_names("rrf(bm25:k1=2,b=0.5,lsa)") == ["bm25:k1=2,b=0.5", "lsa"]
    assert fused_names("mean(a,b)") == fused_names("rrf(a,b),c") == fused_names("lsa") == fused_names("") == []


def test_fused_and_labelled_systems() -> None:
    text = "rrf(bm25:k1=2,b=0.5,lsa),mine=lsa:dimension=8,rrf(bm25,mine=lsa:dimension=8),both=rrf(bm25,lsa)"
    rrf, mine, labelled_part, labelled = systems = parse_systems(text)
    assert (rrf.ranker, rrf.name) == ("rrf", "rrf(bm25:k1=2,b=0.5,lsa)")
    assert parse_systems(rrf.name)[0].name == rrf.name
    assert (mine.name, labelled_part.name, labelled.name) == ("mine", "rrf(bm25,mine)", "both")
    assert mine.key == "lsa:dimension=8"
    assert [model.name for model in encoders(systems)] == ["lsa", "lsa:dimension=8"]


def test_reranked_systems(models: Path) -> None:
    for cross, precision in (("cross:max_length=64,compute=bfloat16", None), ("cross:max_length=64", "bf16")):
        text = f"rerank(rrf(bm25,lsa),cross:{models}/{cross},30)"
        (system,) = parse_systems(text, precision)
        reranker = system.ranker
        assert isinstance(reranker, Reranker)
        assert (system.parts[0].name, reranker.head, reranker.model.max_length) == ("rrf(bm25,lsa)", 30, 64)
        assert reranker.model.compute == "bfloat16"
        assert system.name == "rerank(rrf(bm25,lsa),cross:cross:compute=bfloat16,max_length=64,30)"
        assert [model.name for model in encoders([system])] == ["lsa"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{}/one", "one"),
        ("{}/one:compute=bfloat16", "one:compute=bfloat16"),
        ("{}/one:adapter={}/adapter", "one:adapter=adapter"),
        ("mean({}/one,{}/third)", "mean(one,third)"),
        ("sentences:encoder={}/one", "sentences:encoder=one"),
        ("rrf(bm25,{}/one)", "rrf(bm25,one)"),
        ("rerank({}/one,cross:{}/cross,3)", "rerank(one,cross:cross,3)"),
        ("{}/hub/scincl", "hub/scincl"),
    ],
)
def test_a_path_is_shown_by_the_name_of_its_folder(models: Path, text: str, name: str) -> None:
    text = text.replace("{}", str(models))
    (system,) = parse_systems(text)
    assert system.name == name == stored_names(text)[0]
    assert stored_names(name) == (name,)


@pytest.mark.parametrize("form", ["{}", "{}:compute=bfloat16", "mean({},{third})", "{one}:adapter={}"])
def test_the_same_weights_at_two_paths_have_one_key(models: Path, form: str) -> None:
    pair = ["one", "two"] if "adapter" not in form else ["adapter", "again"]
    if pair[1] == "again":
        shutil.copytree(models / "adapter", models / "again")
    texts = [form.replace("{}", f"{models}/{name}").format(one=models / "one", third=models / "third") for name in pair]
    one, two = map(registry.resolve, texts)
    assert one.name != two.name
    assert (one.key, one.slug, one.base_slug, one.identity) == (two.key, two.slug, two.base_slug, two.identity)
    assert str(models)[1:] not in one.key


def test_scores_keep_their_system_as_data(root: Path) -> None:
    pool = flags("--year 2019 --size 300 --queries 10 --samples 1")
    mdcr(root, "tune", *flags("--year 2019 --size 300 --queries 10"))
    model = "bm25:tuned,rrf(bm25,mine=lsa:dimension=8),both=rrf(bm25,lsa)"
    mdcr_json(root, "eval", *pool, "--model", model)
    mdcr_json(root, "eval", *pool, "--model", "lsa,rrf(bm25,lsa)", "--engine", "faiss:IVF4,Flat:nprobe=2")
    scores = {str(artifact.manifest.config["system"]): artifact.manifest for artifact in published(root / SCORES)}
    systems = {name: stored_system(manifest) for name, manifest in scores.items()}
    assert {name: str(system) for name, system in systems.items()} == {
        "bm25:tuned": "bm25:tuned",
        "rrf(bm25:tuned,mine)": "rrf(bm25:tuned,mine=lsa:dimension=8)",
        "both": "both=rrf(bm25:tuned,lsa)",
        "lsa": "lsa",
        "lsa@faiss:IVF4,Flat:nprobe=2": "lsa",
        "rrf(bm25:tuned,lsa)": "rrf(bm25:tuned,lsa)",
    }
    for name, manifest in scores.items():
        earlier = {key: value for key, value in manifest.provenance.items() if key != "system"}
        exact = name.partition("@")[0]
        for system in (systems[name], stored_system(dataclasses.replace(manifest, provenance=earlier))):
            assert system.title == name
            title, aliases = display_name(system, tuned=True)
            assert title == name.replace("bm25:tuned", "bm25")
            assert {title, *aliases} == {name, title, exact, exact.replace("bm25:tuned", "bm25")}


def test_untuned_bm25_is_spelled_where_the_pool_has_a_tuning() -> None:
    name, fixed = Name("rrf", (Name("bm25"), Name("lsa"))), "bm25:k1=0.9,b=0.4"
    assert display_name(Name("bm25"), tuned=True) == (fixed, [])
    assert display_name(Name("bm25"), tuned=False) == ("bm25", [fixed])
    assert display_name(name, tuned=True) == (f"rrf({fixed},lsa)", [])
    assert display_name(name, tuned=False) == ("rrf(bm25,lsa)", [f"rrf({fixed},lsa)"])
