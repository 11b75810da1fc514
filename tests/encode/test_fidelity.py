"""Every entry of ``models.toml`` against what its authors compute: one text at a time, no batches, float32.

Each model is a small one of its architecture with random weights, in the hub's cache layout under its own hub id. The
recipes below are the model cards', written down again; aspire's is in ``test_aspire.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from pipeline.corpus.reader import Text
from pipeline.encode import hub, names
from pipeline.encode.model import Role
from tests.encode import test_aspire
from tests.encode.test_architectures import ARCHITECTURES
from tests.encode.tiny import (
    SMALL,
    commit_of,
    load,
    save_adapter,
    save_bert,
    save_mpnet,
    save_pals,
    snapshot,
    words,
)

Vectors = np.ndarray[Any, np.dtype[np.float32]]


class Recipe(NamedTuple):
    """A model card: the prefixes of a paper and of an ad-hoc query, what joins title and abstract, the pooled token.

    Without a token, the mean of all is scaled to length 1.
    """

    paper: str = ""
    query: str = ""
    joined: str = "[SEP]"
    token: int | None = 0
    length: int = 512

    def string(self, text: Text, role: Role) -> str:
        if role == "query":
            return self.query + text.title
        parts = text if self.joined == "[SEP]" else filter(None, text)
        return self.paper + self.joined.join(parts)


SPECTER, E5 = Recipe(), Recipe("query: ", "query: ", " ", None)
RECIPES = {
    **dict.fromkeys(("scibert", "specter", "scincl", "specter2_base"), SPECTER),
    **dict.fromkeys(("specter2", "specter2_adhoc_query", "specter2_classification", "specter2_regression"), SPECTER),
    **dict.fromkeys(("specter2_2023", "specter2_2023_adhoc_query"), SPECTER),
    **dict.fromkeys(("scincl_prx", "scincl_qry", "scincl_clf", "scincl_rgn"), SPECTER),
    "specter2_ctrl": Recipe("[PRX] ", "[QRY] ", token=1),
    "specter2_ctrl_qry": Recipe("[QRY] ", "[QRY] ", token=1),
    "specter2_ctrl_clf": Recipe("[CLF] ", "[CLF] ", token=1),
    "specter2_ctrl_rgn": Recipe("[RGN] ", "[RGN] ", token=1),
    **dict.fromkeys(("e5-small", "e5-base", "e5-large", "multilingual-e5-large"), E5),
    "mpnet": Recipe(joined=" ", token=None, length=384),
    "minilm": Recipe(joined=" ", token=None, length=256),
}
PALS = {"scirepeval_pals_clf": 0, "scirepeval_pals": 1, "scirepeval_pals_qry": 2, "scirepeval_pals_rgn": 3}
"""Their numbers in the published weights."""
RECIPES |= dict.fromkeys(PALS, SPECTER)
ASPIRE = ("aspire-bm", "aspire-cs", "aspire-ot-bm", "aspire-ot-cs")
ENSEMBLE = {"specter2_ensemble": ("specter2", "specter2_ctrl")}


def texts_around(limit: int) -> list[Text]:
    """Return texts with every number of tokens near a limit, whatever a recipe adds, and odd ones."""
    return [
        *(Text(words(length), "") for length in (1, 513)),
        *(Text("", words(length, 3)) for length in (0, 1, 511)),
        *(Text("w1", words(length, 5)) for length in (0, 5000, *range(limit - 6, limit + 2))),
        Text("  \t ", " \n "),
        Text("w5 😀 w6", "👩‍🔬 w7"),
        Text("שלום w8", "عربي مرحبا"),
        Text("w9 [SEP] w10\0w2", "w11 [MASK]"),
        Text(words(6), "W2 w3 w4. W5 w6! W7 😀? " + words(20)),
    ]


@pytest.fixture(scope="module", name="cache")
def hub_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a cache with a model of every hub id."""
    cache = tmp_path_factory.mktemp("hub")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        patch.setattr(hub, "packaged", lambda name: None)
        entries = [names.entries()[name] for name in (*RECIPES, *ASPIRE)]
        for seed, (hub_id, commit) in enumerate({entry["hub"]: commit_of(entry) for entry in entries}.items()):
            save = save_mpnet if "mpnet" in hub_id else save_pals if "pals" in hub_id else partial(save_bert, seed=seed)
            save(snapshot(cache, hub_id, commit))
        yield cache


def plain_network(cache: Path, entry: dict[str, Any]) -> tuple[Any, Any]:
    """Return tokenizer and network as the model card loads them."""
    folder = snapshot(cache, entry["hub"], commit_of(entry))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if "adapter" not in entry:
        return tokenizer, AutoModel.from_pretrained(folder).eval()
    network = AutoModel.from_pretrained(folder).eval()
    state = torch.load(snapshot(cache, entry["adapter"]) / "pytorch_adapter.bin")
    for number, layer in enumerate(network.encoder.layer):
        own = {key.split(".adapters.tiny.")[1]: weight for key, weight in state.items() if f"layer.{number}." in key}
        layer.output.LayerNorm.register_forward_hook(partial(_adapted, own))
    return tokenizer, network


def _adapted(weights: Mapping[str, torch.Tensor], norm: Any, args: tuple[torch.Tensor], states: torch.Tensor) -> Any:
    """Return a layer's states with an adapter: the normalised sum of what was normalised and the adapter's result."""
    narrow = states @ weights["adapter_down.0.weight"].T + weights["adapter_down.0.bias"]
    result = narrow.clamp(min=0) @ weights["adapter_up.weight"].T + weights["adapter_up.bias"]
    return torch.nn.functional.layer_norm(args[0] + result, states.shape[-1:], norm.weight, norm.bias, norm.eps)


@cache
def published_weights(folder: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return tokenizer and weights of a model, in double precision."""
    state = {name: weight.double() for name, weight in torch.load(folder / "pytorch_model.bin").items()}
    return AutoTokenizer.from_pretrained(folder), state


def plain_pals(folder: Path, text: str, task: int) -> Vectors:
    """Return the vector of a text by matrix products over the published weights, one head at a time."""
    tokenizer, state = published_weights(folder)

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.nn.functional.layer_norm(
            x, x.shape[-1:], state[f"{name}.LayerNorm.weight"], state[f"{name}.LayerNorm.bias"], 1e-12
        )

    def gelu(x: torch.Tensor) -> torch.Tensor:
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    def attention(x: torch.Tensor, name: str, heads: int) -> torch.Tensor:
        q, k, v = (linear(x, f"{name}.{part}").chunk(heads, -1) for part in ("query", "key", "value"))
        return torch.cat([(a @ b.T / a.shape[1] ** 0.5).softmax(-1) @ c for a, b, c in zip(q, k, v, strict=True)], -1)

    ids = tokenizer(text, truncation=True, max_length=512)["input_ids"]
    rows = {"word": ids, "position": range(len(ids)), "token_type": [0] * len(ids)}
    x = norm(sum(state[f"embeddings.{name}_embeddings.weight"][list(r)] for name, r in rows.items()), "embeddings")
    for number in range(SMALL["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        mixed = attention(x, f"{layer}.attention.self", int(SMALL["num_attention_heads"]))
        attended = norm(linear(mixed, f"{layer}.attention.output.dense") + x, f"{layer}.attention.output")
        small = attention(linear(x, f"encoder.mult_aug_dense.{task}"), f"{layer}.multi_layers.{task}.attn", 6)
        pal = gelu(linear(small, f"encoder.mult_aug_dense2.{task}"))
        inner = linear(gelu(linear(attended, f"{layer}.intermediate.dense")), f"{layer}.output.dense")
        x = norm(inner + attended + pal, f"{layer}.output")
    return x[0].numpy()


def reference(cache: Path, name: str, texts: Sequence[Text], role: Role) -> Vectors:
    if name in ENSEMBLE:
        parts = [reference(cache, part, texts, role) for part in ENSEMBLE[name]]
        return np.mean(parts, axis=0, dtype=np.float32)
    entry = names.entries()[name]
    if role == "query" and "query" in entry:
        return reference(cache, entry["query"], texts, role)
    folder = snapshot(cache, entry["hub"], commit_of(entry))
    if name in ASPIRE:
        return np.concatenate([test_aspire.one_by_one(folder, text) for text in texts])
    recipe = RECIPES[name]
    strings = [recipe.string(text, role) for text in texts]
    if name in PALS:
        return np.stack([plain_pals(folder, string, PALS[name]) for string in strings])
    tokenizer, network = plain_network(cache, entry)
    vectors = []
    for string in strings:
        inputs = tokenizer(string, truncation=True, max_length=recipe.length, return_tensors="pt")
        with torch.inference_mode():
            output = network(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        states = output.last_hidden_state[0]
        vectors.append(
            (states.mean(0) / states.mean(0).norm() if recipe.token is None else states[recipe.token]).numpy()
        )
    return np.stack(vectors)


def test_no_entry_is_left_out() -> None:
    fitted = {"lsa", "sentences", "word2vec", "word2vec-tfidf"}
    larger = {"qwen3-4b", "qwen3-8b"}  # the recipe of qwen3-0.6b
    elsewhere = {"oagbert", "oagbert-v2"}  # test_oagbert.py
    assert {*RECIPES, *ASPIRE, *ENSEMBLE, *ARCHITECTURES, *fitted, *larger, *elsewhere} == set(names.entries())


@pytest.mark.parametrize("name", [*RECIPES, *ASPIRE, *ENSEMBLE])
def test_vectors_are_those_of_the_authors(cache: Path, name: str) -> None:
    parts = ENSEMBLE.get(name, (name,))
    for part in (*parts, *(names.entries()[part].get("query", part) for part in parts)):
        entry = names.entries()[part]
        if "adapter" in entry:
            folder = snapshot(cache, entry["adapter"])
            folder.is_dir() or save_adapter(
                folder, snapshot(cache, entry["hub"], commit_of(entry)), seed=len(entry["adapter"])
            )
    model, encoder = load(name)
    texts = test_aspire.TEXTS if name in ASPIRE else texts_around(RECIPES[parts[0]].length)
    texts = texts[::3] if name in PALS else texts  # the plain computation is slow
    expected = reference(cache, name, texts, "paper")
    close = 1e-4 if name in PALS else 1e-5
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=close)
    if name not in ASPIRE:
        queries = load(model.query)[1] if model.query else encoder
        np.testing.assert_allclose(queries.encode(texts, "query"), reference(cache, name, texts, "query"), atol=close)
