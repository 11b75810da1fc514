"""Folders in the layout of sentence-transformers: the vectors are its own, and what is not understood is refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Normalize, Pooling
from transformers import BertTokenizerFast, T5Config, T5Model

from pipeline.core.config import canonical, digest
from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode import kinds, registry
from pipeline.encode.spec import POOLING, TransformerSpec
from tests.encode.test_transformer import smallest_cosine
from tests.encode.tiny import save_bert, save_in_cache, words

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TEXTS = [Text(words(1), ""), Text("", words(9, 3)), Text(words(4), words(60, 5)), Text("W5 W6", words(600) + " W7")]
LEGACY = {"cls": "cls_token", "lasttoken": "lasttoken"} | {
    mode: f"{mode}_tokens" for mode in ("max", "mean", "mean_sqrt_len", "weightedmean")
}


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**(read_json(path) if path.is_file() else {}), **values}))


def save(folder: Path, *modules: Any, dimension: int = 32, **settings: Any) -> Path:
    """Save a BERT with the modules that follow it, as the installed version saves it."""
    first = Transformer(str(save_bert(folder.with_name("bert"))), max_seq_length=128)
    SentenceTransformer(modules=[first, *modules], device="cpu", **settings).save(str(folder))
    return folder


def legacy(folder: Path, *modes: str) -> Path:
    """Spell the settings as versions before 5 did, with their module names."""
    pooling = {f"pooling_mode_{key}": mode in modes for mode, key in LEGACY.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **pooling}))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 64, "do_lower_case": false}')
    modules = read_json(folder / "modules.json")
    for module in modules:
        module["type"] = "sentence_transformers.models." + module["type"].rpartition(".")[2]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def cased(folder: Path) -> Path:
    """Give it a tokenizer that keeps case, and the setting that lower-cases text first."""
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=False, model_max_length=128)
    tokenizer.save_pretrained(folder)
    change(folder / "sentence_bert_config.json", do_lower_case=True)
    return folder


def as_binary(folder: Path) -> Path:
    """Save the weights of its dense layer as early versions did."""
    from safetensors.torch import load_file

    path = folder / "2_Dense" / "model.safetensors"
    torch.save(load_file(path), path.with_name("pytorch_model.bin"))
    path.unlink()
    return folder


def t5(folder: Path) -> Path:
    """Save an encoder and decoder, whose encoder alone is read."""
    torch.manual_seed(2)
    config = T5Config(vocab_size=315, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0)
    save(folder, Pooling(32, "mean"))
    T5Model(config).save_pretrained(folder)
    change(folder / "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    return folder


Save = Callable[[Path], Path]
PROMPTS = {"query": "w3 ", "document": "w4 w5 ", "other": "w6 "}
VARIANTS: dict[str, Save] = {
    **{mode: lambda path, mode=mode: save(path, Pooling(32, mode)) for mode in POOLING},  # type: ignore[misc]
    **{
        f"legacy {mode}": lambda path, mode=mode: legacy(save(path, Pooling(32, "mean")), mode)  # type: ignore[misc]
        for mode in ("lasttoken", "weightedmean")
    },
    "concatenated": lambda path: save(path, Pooling(32, ("mean", "cls", "lasttoken")), Normalize()),
    "legacy concatenated": lambda path: legacy(save(path, Pooling(32, "mean")), "max", "cls"),
    "dense": lambda path: save(path, Pooling(32, "mean"), Dense(32, 16), Normalize()),
    "dense without bias": lambda path: as_binary(
        save(path, Pooling(32, "cls"), Dense(32, 48, bias=False, activation_function=torch.nn.GELU()))
    ),
    "two dense": lambda path: save(
        path, Pooling(32, "mean"), Dense(32, 64, activation_function=torch.nn.Identity()), Dense(64, 8)
    ),
    "cased": lambda path: cased(save(path, Pooling(32, "mean"))),
    "prompts": lambda path: save(path, Pooling(32, "mean"), prompts=PROMPTS),
    "encoder of two": t5,
}


def load(folder: Path | str) -> tuple[Any, Any]:
    model = registry.resolve(str(folder))
    return model, kinds.find("transformer").load(model, None, Resources(workers=1, device="cpu"))


@pytest.mark.parametrize("name", VARIANTS)
def test_vectors_are_those_of_sentence_transformers(tmp_path: Path, name: str) -> None:
    folder = VARIANTS[name](tmp_path / "model")
    peer = SentenceTransformer(str(folder), device="cpu")
    model, encoder = load(folder)
    assert model.spec.max_length == peer.max_seq_length
    joined = [" ".join(filter(None, text)) for text in TEXTS]
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), encoder.dimension)
    assert smallest_cosine(vectors, peer.encode_document(joined)) >= 0.9999
    queries = encoder.encode([Text(text, "") for text in joined], "query")
    assert smallest_cosine(queries, peer.encode_query(joined)) >= 0.9999


def test_a_default_prompt_serves_where_no_other_does(tmp_path: Path) -> None:
    prompts = {"query": "w3 ", "other": "w4 w5 "}
    folder = save(tmp_path / "model", Pooling(32, "mean"), prompts=prompts, default_prompt_name="other")
    model, encoder = load(folder)
    assert (model.spec.paper_prefix, model.spec.query_prefix) == ("w4 w5 ", "w3 ")
    peer = SentenceTransformer(str(folder), device="cpu")
    joined = [" ".join(filter(None, text)) for text in TEXTS]
    assert smallest_cosine(encoder.encode(TEXTS), peer.encode(joined)) >= 0.9999


def test_settings_decide_the_identity(tmp_path: Path) -> None:
    assert canonical(TransformerSpec("org/model", "main")).keys().isdisjoint({"lower_case", "dense"})
    folder = save(tmp_path / "model", Pooling(32, "mean"), Dense(32, 16), similarity_fn_name="dot")
    model = registry.resolve(str(folder))
    assert (model.distance, model.spec.dense, model.spec.normalise) == ("inner_product", ("2_Dense",), False)  # type: ignore[attr-defined]
    change(folder / "2_Dense" / "config.json", activation_function="torch.nn.modules.linear.Identity")
    other = registry.resolve(str(folder))
    assert other.spec.revision != model.spec.revision  # type: ignore[attr-defined]
    change(folder / "sentence_bert_config.json", do_lower_case=True)
    lowered = registry.resolve(str(folder)).spec
    assert digest(lowered) != digest(other.spec)
    assert registry.resolve(f"{folder}:lower_case=false").spec.lower_case is False  # type: ignore[attr-defined]


def test_folders_with_other_settings_have_other_revisions(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", Pooling(32, "mean"), prompts=PROMPTS)
    settings = {
        "config_sentence_transformers.json": {"prompts": {**PROMPTS, "document": "w5 w4 "}},
        "1_Pooling/config.json": {"pooling_mode": "cls"},
        "sentence_bert_config.json": {"max_seq_length": 64},
    }
    revisions = {registry.resolve(str(folder)).spec.revision}  # type: ignore[attr-defined]
    keys = {registry.resolve(str(folder)).key}
    for path, values in settings.items():
        changed = shutil.copytree(folder, tmp_path / Path(path).stem)
        change(changed / path, **values)
        revisions.add(registry.resolve(str(changed)).spec.revision)  # type: ignore[attr-defined]
        keys.add(registry.resolve(str(changed)).key)
    assert len(revisions) == len(keys) == 4


@pytest.mark.parametrize(
    ("path", "values", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "median"}, "pooling median"),
        ("1_Pooling/config.json", {"pooling_mode_first_tokens": True}, "pooling_mode_first_tokens"),
        ("2_Dense/config.json", {"activation_function": "mine.Swish"}, "mine.Swish"),
        ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "module_input_name"),
        ("2_Dense/config.json", {"in_features": 31}, "2_Dense cannot be loaded"),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"padding": "max_length"}}}, "processing_kwargs"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "manhattan"}, "'manhattan'"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "SparseEncoder"),
        ("config_sentence_transformers.json", {"default_prompt_name": "none"}, "default_prompt_name"),
        ("config_sentence_transformers.json", {"truncate_dim": 8}, "truncate_dim"),
    ],
)
def test_a_setting_that_is_not_understood_is_refused(
    tmp_path: Path, path: str, values: dict[str, Any], message: str
) -> None:
    folder = save(tmp_path / "model", Pooling(32, "mean"), Dense(32, 16))
    change(folder / path, **values)
    with pytest.raises(InputError, match=message):
        load(folder)


def test_modules_that_are_not_understood_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", Pooling(32, "mean"), LayerNorm(32))
    with pytest.raises(InputError, match=r"module .*LayerNorm"):
        registry.resolve(str(folder))
    modules = read_json(folder / "modules.json")
    modules[2]["type"] = "custom_code.Normalize"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=r"module custom_code.Normalize"):
        registry.resolve(str(folder))
    (folder / "modules.json").write_text(json.dumps(modules[:1]))
    with pytest.raises(InputError, match="must list Transformer, Pooling"):
        registry.resolve(str(folder))
    whole = save(tmp_path / "excluding", Pooling(32, "mean", include_prompt=False), prompts={"query": "w3 "})
    with pytest.raises(InputError, match="leaves the prompt out"):
        registry.resolve(str(whole))


def test_a_template_alone_leaves_the_rest_to_the_folder(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", Pooling(32, "mean"), Normalize())
    own = registry.resolve(str(folder))
    given, default = (
        registry.resolve(f"{folder}:template=fields-sep"),
        registry.resolve(str(folder), None, "fields-sep"),
    )
    assert given == default
    assert given.spec == dataclasses.replace(own.spec, template="fields-sep")  # type: ignore[type-var, call-arg]
    assert (given.distance, given.name) == ("cosine", f"{folder}:template=fields-sep")


def test_a_known_hub_id_takes_the_recipe_of_its_entry_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    registry._say_once.cache_clear()
    model = save(tmp_path / "model", Pooling(32, "cls"))
    for hub_id in ("malteos/scincl", "org/other"):
        folder = save_in_cache(tmp_path / "cache", hub_id, COMMIT)
        for part in ("modules.json", "sentence_bert_config.json", "1_Pooling"):
            (model / part).rename(folder / part) if hub_id == "malteos/scincl" else None
    known, entry = registry.resolve("hf:malteos/scincl"), registry.resolve("scincl")
    registry.resolve("hf:malteos/scincl")
    assert (known.spec, known.distance) == (entry.spec, entry.distance)
    registry.resolve("hf:org/other")
    recipe = "template=title-sep-abstract, pooling=cls, max_length=512, distance=l2"
    other = "its modules.json says template=title-space-abstract, distance=cosine"
    assert sorted(capsys.readouterr().err.splitlines()) == [
        f"hf:malteos/scincl: {recipe} (of models.toml; {other})",
        f"hf:org/other: {recipe} (SPECTER's: no modules.json)",
        f"scincl: {recipe} (of models.toml; {other})",
    ]
