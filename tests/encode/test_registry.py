"""Names, options, folders and the hub's cache become models; what cannot is an error with a remedy."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from pipeline.core.config import digest
from pipeline.core.errors import InputError, StageError
from pipeline.corpus.reader import Text
from pipeline.encode import kinds, known, names, registry
from pipeline.encode.kinds import Aspire, Lsa, Pretrained
from tests.encode.tiny import COMMIT, commit_of, load, save_bert, save_in_cache, snapshot, words
from tests.shared import SHARED

ADAPTER_COMMIT = "f" * 40
MODULES = '[{"type": "sentence_transformers.models.Transformer", "path": ""}]'


def save_adapter_in_cache(cache: Path, hub_id: str) -> None:
    folder = snapshot(cache, hub_id, ADAPTER_COMMIT)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "pytorch_adapter.bin").write_text("weights")


def listing(name: str) -> known.KnownModel:
    return next(listing for listing in known.known_models() if listing.name == name)


def test_every_entry_resolves(cache: Path) -> None:
    for name, entry in names.entries().items():
        if "adapter" in entry:
            save_adapter_in_cache(cache, entry["adapter"])
        if "hub" in entry and name != "minilm":
            commit = commit_of(entry)
            folder = snapshot(cache, entry["hub"], commit)
            folder.is_dir() or save_in_cache(cache, entry["hub"], commit)
            if entry.get("pooling") == "modules":
                (folder / "modules.json").write_text(MODULES)
        if name.startswith("oagbert"):  # weights in a folder: test_oagbert.py
            continue
        model = registry.resolve(name)
        assert model.name == name
        if "hub" in entry and name != "minilm":
            assert isinstance(model, Pretrained)
            assert (model.checkpoint, model.revision) == (entry["hub"], commit)
            assert model.multi_vector == isinstance(model, Aspire)
            assert model.distance == entry["distance"]
            assert not model.query or model.query in names.entries()
            assert model.files.ready().name == commit
    assert {entry.name for entry in known.known_models() if not entry.available} == {"oagbert", "oagbert-v2"}


def test_adapters_are_part_of_the_identity(cache: Path) -> None:
    save_in_cache(cache, "allenai/specter2_base")
    with pytest.raises(StageError, match="allenai/specter2 "):
        registry.resolve("specter2")
    save_adapter_in_cache(cache, "allenai/specter2")
    model: Any = registry.resolve("specter2")
    assert (model.adapter, model.adapter_revision) == ("allenai/specter2", ADAPTER_COMMIT)
    assert model.revision == COMMIT
    assert digest(model.identity) != digest(registry.resolve("specter2_base").identity)


def test_an_entry_may_be_the_mean_of_others(cache: Path) -> None:
    for hub_id in ("allenai/specter2_base", "allenai/scirepeval_ctrl"):
        save_in_cache(cache, hub_id)
    assert not listing("specter2_ensemble").available
    for hub_id in ("allenai/specter2", "allenai/specter2_adhoc_query"):
        save_adapter_in_cache(cache, hub_id)
    model, spelled = registry.resolve("specter2_ensemble"), registry.resolve("mean(specter2,specter2_ctrl)")
    assert model.identity == spelled.identity
    assert (model.name, model.query) == ("specter2_ensemble", "mean(specter2_adhoc_query,specter2_ctrl)")
    reduced: Any = registry.resolve("specter2_ensemble:storage=float16", precision="bfloat16")
    assert reduced.name == "specter2_ensemble:compute=bfloat16,storage=float16"
    assert registry.resolve(reduced.name) == reduced
    assert {part.compute for part in reduced.parts} == {"bfloat16"}
    ensemble = listing("specter2_ensemble")
    assert (ensemble.available, ensemble.licence) == (True, "Apache-2.0")
    with pytest.raises(InputError, match="compute must be float32, bfloat16 or float16, got 'float8'"):
        registry.resolve("specter2_ensemble:compute=float8")


def test_published_figures_belong_to_a_system() -> None:
    assert known.published("scincl")["dataset-2M.map"] == 21.6
    assert known.published("scincl:compute=bfloat16,storage=float16") == known.published("scincl")
    assert known.published("scincl:pooling=mean") == known.published("hf:org/model") == {}
    assert known.published("bm25:tuned") == known.published("rrf(bm25,scincl)") == {}
    assert known.published("specter2_ensemble") != known.published("mean(specter2,scincl)") == {}
    assert known.published("scibert")["aop10.ICLR.LL-HS"] == 71.2


MDCR = {"SCIBERT": "scibert", "SPECTER": "specter", "SCINCL": "scincl"}
MDCR |= {"ASPIRE-BM": "aspire-bm", "ASPIRE-CS": "aspire-cs"}
SPECTER2 = {"SPECTER2 Base": "specter2_base", "SPECTER2 MTL CTRL": "specter2_ctrl", "SPECTER2 Adapters": "specter2"}
SPECTER2 |= {"SPECTER2 Adapters + MTL CTRL": "specter2_ensemble"}
OTHERS = {"SciBERT": "scibert", "SPECTER": "specter", "SciNCL": "scincl", "E5-base-v2": "e5-base", "MPNet": "mpnet"}
TABLES = (
    ("mdcr_table3_benchmark", MDCR, "benchmark.{measure}"),
    ("mdcr_table6_scidocs_cite", MDCR, "scidocs-cite.{measure}"),
    ("scirepeval_table10_mdcr", SPECTER2, "benchmark.{measure}"),
    ("scirepeval_table2_averages", OTHERS | SPECTER2, "scirepeval.{measure}"),
    ("neighbours_table3_title_queries", OTHERS, "title-queries-{task}.{dataset}.{measure}"),
    ("neighbours_table4_aop10", OTHERS, "aop10.{dataset}.{category}"),
)
"""Tables of the papers, our names of their systems, and what a figure is called; more in ``large_scale``."""


@pytest.mark.realdata
def test_published_figures_are_those_of_the_papers_tables() -> None:
    folder = SHARED / "reference"
    if not folder.is_dir():
        pytest.skip(f"no tables at {folder}: set MDCR_SHARED")
    compared = 0
    for table, systems, name in TABLES:
        with (folder / f"{table}.csv").open(newline="") as lines:
            rows = [
                row for row in csv.DictReader(lines) if row["model"] in systems and row.get("field", "AVG") == "AVG"
            ]
        for row in rows:
            figures = known.published(systems[row["model"]])
            for measure in row.keys() - ("model", "field", "dataset", "task", "category"):
                value = float(row[measure]) * (100 if measure == "mrr" else 1)
                assert figures[name.format(**row, measure=measure.replace("_", "-"))] == round(value, 1)
                compared += 1
    assert compared > 100


def test_options_change_name_and_identity(cache: Path) -> None:
    lsa = registry.resolve("lsa:dimension=64")
    assert (lsa.identity, lsa.name) == (Lsa(dimension=64).identity, "lsa:dimension=64")
    assert (lsa.slug, lsa.distance) == ("lsa-dimension-64", "cosine")
    assert registry.resolve("lsa", precision="bfloat16").identity == Lsa().identity
    save_in_cache(cache, "malteos/scincl")
    plain, reduced = registry.resolve("scincl"), registry.resolve("scincl:compute=bfloat16")
    assert registry.resolve("scincl:compute=float32,max_length=512,normalise=false") == plain
    assert reduced == registry.resolve("scincl", precision="bfloat16")
    assert (reduced.name, reduced.slug) == ("scincl:compute=bfloat16", "scincl-compute-bfloat16")
    assert reduced.identity != plain.identity
    half: Any = registry.resolve("scincl:compute=float16", precision="bfloat16")
    assert half.compute == "float16"
    assert registry.resolve("scincl:distance=cosine").identity == plain.identity


def test_the_content_of_a_folder_is_its_identity(tmp_path: Path) -> None:
    first, second = (save_bert(tmp_path / name) for name in ("first", "second"))
    plain = registry.resolve(str(second))
    assert registry.resolve(str(first)).identity == plain.identity
    assert registry.resolve(str(first)).name != plain.name
    assert registry.resolve(str(save_bert(first, seed=2))).identity != plain.identity
    settings = second / "tokenizer_config.json"
    settings.write_text(settings.read_text().replace('"do_lower_case": true', '"do_lower_case": false'))
    assert registry.resolve(str(second)).identity != plain.identity
    short: Any = registry.resolve(str(save_bert(tmp_path / "short", positions=128)))
    assert short.max_length == 128


def encoded(folder: Path) -> np.ndarray[Any, Any]:
    vectors: np.ndarray[Any, Any] = load(folder)[1].encode([Text(words(5), words(9, 3))])
    return vectors


def test_what_is_loaded_is_what_identifies_a_folder(tmp_path: Path) -> None:
    first, second = (save_bert(tmp_path / f"seed{seed}", seed=seed) for seed in (1, 2))
    binary, state = second / "pytorch_model.bin", load_file(second / "model.safetensors")
    expected = encoded(second)
    assert not np.array_equal(expected, encoded(first))
    torch.save(state, binary)
    plain = registry.resolve(str(second)).identity
    for name in ("model.fp16.safetensors", "model-old.safetensors", "adapter_model.safetensors", "tokenizer.1.json"):
        shutil.copy(first / "model.safetensors", second / name)
    assert registry.resolve(str(second)).identity == plain
    (second / "model.safetensors").unlink()  # what is left of the right name is the binary alone
    assert registry.resolve(str(second)).identity != plain
    np.testing.assert_array_equal(encoded(second), expected)


def test_every_file_of_sharded_weights_identifies_them(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "model")
    expected = encoded(folder)
    AutoModel.from_pretrained(folder).save_pretrained(folder, max_shard_size="40KB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    whole = registry.resolve(str(folder)).identity
    np.testing.assert_array_equal(encoded(folder), expected)
    state = load_file(shards[-1])
    save_file({name: weight * 2 for name, weight in state.items()}, shards[-1], {"format": "pt"})
    assert registry.resolve(str(folder)).identity != whole
    shards[0].unlink()
    with pytest.raises(InputError, match="holds no weights"):
        registry.resolve(str(folder))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scinkl", r"no model 'scinkl'. Did you mean 'scincl'"),
        ("./nowhere", r"no model folder './nowhere'. A model of the hub is written hf:"),
        ("lsa:dimensions=3", "no setting 'dimensions'. Did you mean 'dimension'"),
        ("minilm:pooling=most", "pooling 'most' of minilm"),
        ("minilm:kind=lsa", "'kind=lsa' in 'minilm:kind=lsa' is not an option"),
        ("hf:a/b/c", "'a/b/c' is not a hub id"),
        ("mean(lsa,word2vec)", r"mean\(.*\) must average transformers"),
    ],
)
def test_bad_names(cache: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        registry.resolve(text)


LACKING = {
    "config.json": r"--model=.* cannot be loaded by sentence-transformers \d\.\d+: \w+: ",
    "model.safetensors": "holds no weights",
    "tokenizer.json": "holds no tokenizer",
}


@pytest.mark.parametrize(("lacking", "message"), LACKING.items())
def test_folders_that_hold_no_model(tmp_path: Path, lacking: str, message: str) -> None:
    folder = save_bert(tmp_path / "model", tokenizer=lacking != "tokenizer.json")
    (folder / lacking).unlink(missing_ok=True)
    with pytest.raises(InputError, match=message):
        load(folder)


def test_an_unreachable_hub_is_named_with_the_remedy(cache: Path) -> None:
    with pytest.raises(StageError) as caught:
        registry.resolve("specter")
    for part in ("allenai/specter", str(cache), "hf download allenai/specter"):
        assert part in str(caught.value)
    assert not listing("specter").available
    folder = save_in_cache(cache, "allenai/specter")
    (folder / "model.safetensors").unlink()
    checkpoint = registry.resolve("specter").files
    with pytest.raises(StageError, match=f"hf download allenai/specter --revision {COMMIT}"):
        checkpoint.ready()


RESOLVING = """
import sys
from pipeline.encode import known, registry
registry.resolve("lsa"), known.known_models()
print([name for name in ("torch", "transformers", "sklearn", "pyarrow", "numpy") if name in sys.modules])
"""


def test_resolving_imports_no_large_package() -> None:
    done = subprocess.run([sys.executable, "-c", RESOLVING], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_every_entry_with_weights_says_what_it_was_trained_on() -> None:
    for name, entry in names.entries().items():
        trained = known.trainings(name)
        if "hub" in entry:
            assert trained[name].until is not None
            assert trained[name].on.partition(":")[0] in ("citations", "co-citations", "texts")
        else:
            assert bool(trained) == (name in ("specter2_ensemble", "sentences", "oagbert", "oagbert-v2"))


def test_trainings_of_encoders_inside_a_system() -> None:
    def short(system: str) -> dict[str, str]:
        return {name: training.short for name, training in known.trainings(system).items()}

    assert short("rrf(bm25:tuned,mine=aspire-bm)") == {"aspire-bm": "co-citations to 2019"}
    assert short("mean(sentences:encoder=specter,hf:malteos/scincl)").keys() == {"specter", "scincl"}
    assert short("bm25,bm25:tuned,random,rerank(bm25:k1=1,b=0.5,lsa,20)") == {}
    assert short("bm25,lsa,/models/mine") == {"/models/mine": ""}  # unknown


def test_prompts_of_a_task_are_put_before_queries_or_every_paper(folder: Path) -> None:
    def prefixes(task: str) -> tuple[str, str | None, str]:
        settings = {"folder": str(folder), "prompts": {"proximity": "w1 ", "claim": "w2 "}, "task": task}
        model: Any = kinds.find("transformer").of("mine", settings)
        return model.paper_prefix, model.query_paper_prefix, model.query_prefix

    assert prefixes("proximity") == ("w1 ", None, "w1 ")
    assert prefixes("claim") == ("", "w2 ", "w2 ")
    with pytest.raises(InputError, match="must have a prompt for task 'proximty'.*'proximity'"):
        prefixes("proximty")
    assert registry.for_task("qwen3-0.6b", "regression") == "qwen3-0.6b:task=regression"
    for name in ("qwen3-0.6b:task=claim", "mean(specter2,specter2_ctrl)", "bge-m3"):
        assert registry.for_task(name, "regression") == name
