"""Folders in the layout of sentence-transformers: the vectors are its own, and what is not understood is refused."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Normalize, Pooling, StaticEmbedding
from transformers import AutoTokenizer

from pipeline.core.errors import InputError, MdcrError
from pipeline.corpus.reader import Text
from pipeline.encode import registry
from tests.encode.tiny import change, keep_case, load, save_bert, save_in_cache, words

TEXTS = [
    Text("", ""),
    Text(words(1), ""),
    Text("", words(9, 3)),
    Text(words(4), words(60, 5)),
    Text("W5 W6", words(600) + " W7"),
]
LEGACY = {"cls": "cls_token", "lasttoken": "lasttoken"} | {
    mode: f"{mode}_tokens" for mode in ("max", "mean", "mean_sqrt_len", "weightedmean")
}


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
    modules = json.loads((folder / "modules.json").read_text())
    for module in modules:
        module["type"] = "sentence_transformers.models." + module["type"].rpartition(".")[2]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def before_2(folder: Path) -> Path:
    """Move its transformer into a folder of its own, as versions before 2 saved it, without other settings."""
    first = folder / "0_Transformer"
    first.mkdir()
    for path in [path for path in folder.iterdir() if path.is_file() and path.name != "modules.json"]:
        path.rename(first / path.name)
    (first / "config_sentence_transformers.json").unlink()
    (folder / "config.json").write_text('{"__version__": "1.1.0"}')
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([{**modules[0], "path": first.name}, *modules[1:]]))
    return folder


def static(folder: Path, *modules: Any, truncation: dict[str, Any] | None = None) -> Path:
    """Save an embedding of each token with the tokenizer of a BERT, and the modules that follow it."""
    tokenizer = AutoTokenizer.from_pretrained(save_bert(folder.with_name("bert")))
    torch.manual_seed(3)
    first = StaticEmbedding(tokenizer, embedding_dim=24)
    SentenceTransformer(modules=[first, *modules], device="cpu", prompts=PROMPTS).save(str(folder))
    change(folder / "tokenizer.json", truncation=truncation)
    return folder


PROMPTS = {"query": "w3 ", "document": "w4 w5 ", "other": "w6 "}
MEAN = Pooling(32, "mean")
VARIANTS: dict[str, Callable[[Path], Path]] = {
    "last token": lambda path: save(path, Pooling(32, "lasttoken")),
    "legacy concatenated": lambda path: legacy(save(path, MEAN), "max", "cls"),
    "dense": lambda path: save(path, MEAN, Dense(32, 16), Normalize()),
    "dense without bias": lambda path: save(path, MEAN, Dense(32, 48, bias=False, activation_function=torch.nn.GELU())),
    "cased": lambda path: keep_case(save(path, MEAN)),
    "prompts": lambda path: save(path, MEAN, prompts=PROMPTS),
    "prompts out of the mean": lambda path: save(path, Pooling(32, "mean", include_prompt=False), prompts=PROMPTS),
    "default prompt": lambda path: save(path, MEAN, prompts={"other": "w4 w5 "}, default_prompt_name="other"),
    "before version 2": lambda path: before_2(legacy(save(path, MEAN), "mean")),
    "static of 9 tokens": lambda path: static(
        path, truncation={"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0}
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_vectors_are_those_of_sentence_transformers(tmp_path: Path, name: str) -> None:
    folder = VARIANTS[name](tmp_path / "model")
    peer = SentenceTransformer(str(folder), device="cpu")
    model, encoder = load(folder)
    assert peer.max_seq_length in (model.max_length, math.inf)
    joined = [" ".join(filter(None, text)) for text in TEXTS]
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), encoder.dimension)
    np.testing.assert_allclose(vectors, peer.encode_document(joined), rtol=1e-4, atol=1e-4)
    queries = encoder.encode([Text(text, "") for text in joined], "query")
    np.testing.assert_allclose(queries, peer.encode_query(joined), rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("described") / "model"
    return save(folder, MEAN, Dense(32, 16), prompts=PROMPTS, similarity_fn_name="dot")


def test_every_setting_is_part_of_the_identity(described: Path, tmp_path: Path) -> None:
    model: Any = registry.resolve(str(described))
    assert (model.distance, model.pooling, model.normalise) == ("inner_product", "modules", False)
    models = [model]
    for path, values in {
        "config_sentence_transformers.json": {"prompts": {**PROMPTS, "document": "w5 w4 "}},
        "1_Pooling/config.json": {"pooling_mode": "cls"},
        "2_Dense/config.json": {"activation_function": "torch.nn.modules.linear.Identity"},
        "sentence_bert_config.json": {"max_seq_length": 64, "do_lower_case": True},
    }.items():
        changed = shutil.copytree(described, tmp_path / Path(path).parent / Path(path).stem)
        change(changed / path, **values)
        models.append(registry.resolve(str(changed)))
    assert len({model.revision for model in models}) == len({model.key for model in models}) == 5
    assert models[-1].max_length == 64
    with pytest.raises(InputError, match=r"normalise of .* must go with a pooling, got the modules"):
        registry.resolve(f"{changed}:normalise=true")


@pytest.mark.parametrize(
    ("path", "values", "message"),
    [
        ("2_Dense/config.json", {"activation_function": "mine.Swish"}, "mine.Swish"),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"padding": "max_length"}}}, "processing_kwargs"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "manhattan"}, "'manhattan'"),
        ("config_sentence_transformers.json", {"truncate_dim": 8}, "truncate_dim"),
    ],
)
def test_a_setting_that_is_not_understood_is_refused(
    described: Path, tmp_path: Path, path: str, values: dict[str, Any], message: str
) -> None:
    folder = shutil.copytree(described, tmp_path / "model")
    change(folder / path, **values)
    with pytest.raises(InputError, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("keep", "kind", "message"),
    [
        (3, "custom_code.Normalize", r"module 'custom_code.Normalize', which is never run"),
        (1, "sentence_transformers.models.StaticEmbedding", "cannot be loaded .*embeddings"),
    ],
)
def test_modules_that_are_not_understood_are_refused(tmp_path: Path, keep: int, kind: str, message: str) -> None:
    folder = save(tmp_path / "model", MEAN, LayerNorm(32))
    modules = json.loads((folder / "modules.json").read_text())[:keep]
    modules[-1]["type"] = kind
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=message):
        load(folder)


def test_a_peft_adapter_without_weights_is_not_read_as_its_base(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", MEAN)
    change(folder / "adapter_config.json", peft_type="LORA", base_model_name_or_path="org/base", r=4)
    with pytest.raises(MdcrError, match="no adapter_model.safetensors"):
        load(folder)


@pytest.mark.parametrize("configured", [False, True])
def test_a_peft_adapter_is_read_over_its_base(tmp_path: Path, configured: bool) -> None:
    """As saved, or with the ``config.json`` of its base, which transformers 4 needs and 5 takes for a whole model."""
    peft = pytest.importorskip("peft")
    base, folder = save(tmp_path / "base", MEAN), tmp_path / "adapted"
    adapted = SentenceTransformer(str(base), device="cpu")
    config = peft.LoraConfig(task_type="FEATURE_EXTRACTION", r=2, lora_alpha=8, target_modules=["query", "value"])
    adapted.add_adapter(config)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.5, generator=torch.Generator().manual_seed(1))
    adapted.save(str(folder))
    if configured:
        shutil.copy(base / "config.json", folder)
    model, encoder = load(folder)
    found = encoder.encode(TEXTS)
    joined = [" ".join(filter(None, text)) for text in TEXTS]
    np.testing.assert_allclose(found, adapted.encode_document(joined), rtol=1e-4, atol=1e-4)
    assert np.abs(found - load(base)[1].encode(TEXTS)).max() > 1e-3
    change(base / "config.json", note="another")
    assert registry.resolve(str(folder)).identity != model.identity
    if configured:
        shutil.copy(base / "model.safetensors", folder)
        with pytest.raises(InputError, match="a PEFT adapter beside model.safetensors"):
            registry.resolve(str(folder))
        (folder / "model.safetensors").unlink()
    shutil.rmtree(base)
    with pytest.raises(MdcrError, match="base"):
        registry.resolve(str(folder))


@pytest.mark.parametrize(("limits", "described"), [((512, 128), True), ((64, 512), False)])
def test_the_smaller_of_two_limits_is_the_length(tmp_path: Path, limits: tuple[int, int], described: bool) -> None:
    folder = save_bert(tmp_path / "model", positions=limits[0])
    change(folder / "tokenizer_config.json", model_max_length=limits[1])
    if described:
        SentenceTransformer(modules=[Transformer(str(folder)), MEAN], device="cpu").save(str(folder))
        (folder / "sentence_bert_config.json").write_text("{}")
    model, encoder = load(folder)
    assert model.max_length == min(limits) == max(map(len, encoder.prepare(TEXTS).ids))


def test_options_replace_settings_of_the_folder_one_by_one(described: Path) -> None:
    plain, templated = registry.resolve(str(described)), registry.resolve(f"{described}:template=fields-sep")
    assert templated.identity == {**plain.identity, "template": "fields-sep"}
    assert (templated.distance, templated.name) == ("inner_product", f"{described}:template=fields-sep")


def test_a_known_hub_id_takes_the_recipe_of_its_entry_and_says_so(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line is said once a process: no other test stores these in half precision."""
    model = save(tmp_path / "model", Pooling(32, "cls"))
    save_in_cache(cache, "org/other")
    folder = save_in_cache(cache, "malteos/scincl")
    for part in ("modules.json", "sentence_bert_config.json", "1_Pooling"):
        (model / part).rename(folder / part)
    capsys.readouterr()  # what saving said
    named = [f"{name}:storage=float16" for name in ("hf:malteos/scincl", "hf:org/other", "scincl", "hf:malteos/scincl")]
    known, _, entry, _ = map(registry.resolve, named)
    assert (known.identity, known.distance) == (entry.identity, entry.distance)
    recipe, origins = (
        "template=title-sep-abstract, pooling=cls, max_length=512, distance=l2",
        ("of models.toml", "SPECTER's: no modules.json"),
    )
    assert capsys.readouterr().err.splitlines() == [
        f"{name}: {recipe} ({origins['other' in name]})" for name in named[:3]
    ]
