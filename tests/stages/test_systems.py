"""Names of systems: one grammar, printed as it is read, and stored with scores as data."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.artifact import published
from pipeline.core.config import canonical
from pipeline.core.errors import InputError
from pipeline.core.manifest import Manifest
from pipeline.core.workspace import SCORES
from pipeline.encode import kinds
from pipeline.encode.names import Name, one, parse
from pipeline.encode.registry import published as published_figures
from pipeline.stages.systems import fused_names, means, parse_systems, stored_names, stored_system, uses
from tests.cli.run import flags, mdcr, mdcr_json

BASES = (
    "bm25",
    "bm25:tuned",
    "lsa",
    "scincl",
    "hf:org/name",
    "/models/a(b,c)",
    "vectors:/data/x.npy",
    "cross:org/x",
)
OPTIONS = st.lists(
    st.tuples(st.sampled_from(("k1", "b", "dimension", "storage")), st.sampled_from(("0.5", "float16", "a+b", ""))),
    max_size=3,
)
LABELS = st.sampled_from(("", "", "mine", "x.y-z+1"))
PLAIN = st.builds(Name, st.sampled_from(BASES), st.none(), OPTIONS.map(tuple), LABELS) | st.sampled_from(
    (Name("100"), Name("7"))
)
NAMES = st.recursive(
    PLAIN,
    lambda inside: st.builds(
        Name,
        st.sampled_from(("rrf", "wsum", "rerank", "mean", "ot")),
        st.lists(inside, max_size=3).map(tuple),
        OPTIONS.map(tuple),
        LABELS,
    ),
    max_leaves=8,
)


@given(st.lists(NAMES, max_size=4))
def test_printing_and_parsing_are_inverse(names: list[Name]) -> None:
    assert parse(", ".join(map(str, names))) == names
    assert [Name.of(json.loads(json.dumps(canonical(name)))) for name in names] == names


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
    for key in {place for kind in kinds.registered() for place in kind.places}:
        assert len(parse(f"scincl:storage=float16,{key}=refs/pr/1")) == 1
        assert len(parse(f"scincl,{key}=refs/pr/1")) == 2
    (tmp_path / "a=b:c=d").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse("a=b:c=d") == [Name("a=b:c=d")]
    assert one("hf:a/b:compute=float16,template=x/y").options == (("compute", "float16"), ("template", "x/y"))
    with pytest.raises(InputError, match="'lsa,bm25' must be one name, got several"):
        one("lsa,bm25")


def test_parts_of_a_mean_may_have_options_that_name_files() -> None:
    (mean,) = parse("mean(scincl:compute=bfloat16,adapter=org/x,specter)")
    assert list(map(str, mean.parts or ())) == ["scincl:compute=bfloat16,adapter=org/x", "specter"]
    assert published_figures(str(mean)) == published_figures("mean(lsa:dimension=8,storage=float16,lsa)") == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rrf(bm25,lsa", r"there is no model 'rrf\(bm25,lsa'"),
        ("rrf(bm25,lsa):depth=3", r"there is no model 'rrf\(bm25,lsa\):depth=3'"),
        ("max(lsa,lsa)", r"there is no model 'max\(lsa,lsa\)'. Name an encoder"),
        ("bm25(lsa)", r"there is no model 'bm25\(lsa\)'"),
        ("bm25:1.2", "is not a parameter. Write bm25, bm25:tuned or"),
        ("bm25:k1=high", "'k1=high' in 'bm25:k1=high' is not a parameter"),
        ("bm25:k2=1", "BM25 has no parameter 'k2'"),
        ("bm25:b=2", "'bm25:b=2' is out of range"),
        ("rerank(bm25,lsa)", "must name a system, a cross-encoder and a number"),
        ("a=b=lsa", "there is no model 'b=lsa'"),
    ],
)
def test_names_that_are_no_system(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_systems(name)


def test_questions_about_names() -> None:
    assert stored_names("bm25:k1=1.20,b=0.750,rrf(bm25:b=0.75,mine=lsa)") == (
        "bm25:k1=1.2,b=0.75", "rrf(bm25:k1=0.9,b=0.75,mine)",
    )  # fmt: skip
    assert uses("lsa,again=rerank(wsum(bm25:tuned,lsa),cross:a/b,3)", "wsum")
    assert not uses("wsummed=lsa,rrf(bm25,lsa)", "wsum")
    assert fused_names("rrf(bm25:k1=2,b=0.5,lsa)") == ["bm25:k1=2,b=0.5", "lsa"]
    assert fused_names("mean(a,b)") == fused_names("rrf(a,b),c") == fused_names("lsa") == fused_names("") == []


def test_scores_keep_their_system_as_data(tmp_path: Path) -> None:
    mdcr_json(tmp_path, *flags("corpus --source synthetic --papers 3k --seed 5 --corpus tiny"))
    pool = flags("--year 2019 --size 900 --queries 20 --samples 1")
    mdcr(tmp_path, "tune", *flags("--year 2019 --size 900 --queries 20"))
    model = "bm25:tuned,rrf(bm25,mine=lsa:dimension=8),both=rrf(bm25,lsa)"
    mdcr_json(tmp_path, "eval", *pool, "--model", model)
    mdcr_json(tmp_path, "eval", *pool, "--model", "lsa,rrf(bm25,lsa)", "--engine", "ivf:probes=0.5")
    scores = {str(each.manifest.config["system"]): each.manifest for each in published(tmp_path / SCORES)}
    systems = {name: stored_system(manifest) for name, manifest in scores.items()}
    assert {name: str(system) for name, system in systems.items()} == {
        "bm25:tuned": "bm25:tuned",
        "rrf(bm25:tuned,mine)": "rrf(bm25:tuned,mine=lsa:dimension=8)",
        "both": "both=rrf(bm25:tuned,lsa)",
        "lsa": "lsa",
        "lsa@ivf:probes=0.5": "lsa",
        "rrf(bm25:tuned,lsa)": "rrf(bm25:tuned,lsa)",
    }
    for name, system in systems.items():
        assert system.title == name
        manifest = scores[name]
        earlier = dataclasses.replace(
            manifest, provenance={key: value for key, value in manifest.provenance.items() if key != "system"}
        )
        assert stored_system(earlier).title == name
        for asked in (*systems, "bm25", "rrf(bm25,lsa)", "rrf(bm25,mine)", "lsa@hnsw"):
            assert means(system, asked) == means(stored_system(earlier), asked) == (asked in answers(name))


def answers(name: str) -> set[str]:
    """Return what a user may call a system of this name."""
    exact = name.partition("@")[0]
    return {name, exact, exact.replace("bm25:tuned", "bm25")}


@pytest.mark.parametrize("name", ["run(1", "a,b", "x=lsa", "my run)", "lsa@home"])
def test_a_stored_name_outside_the_grammar_stays(name: str) -> None:
    manifest = Manifest("0" * 64, "score", 1, "x", {"system": name}, {}, (), {})
    assert stored_system(manifest) == Name(name)
