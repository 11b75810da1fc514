"""Every entry of ``models.toml`` against what its authors compute: one text at a time, no batches, float32.

Each model is a small one of its architecture with random weights, in the hub's cache layout under its own hub id. The
recipes below are the model cards', written down again; aspire's is in ``test_aspire.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode import hub, kinds, lock, registry
from pipeline.encode.base import Encoder
from pipeline.encode.spec import AspireSpec, Model, Role
from tests.encode import test_aspire
from tests.encode.test_formats import plain_pals
from tests.encode.test_transformer import smallest_cosine
from tests.encode.tiny import save_adapter, save_bert, save_mpnet, save_pals, words

CPU = Resources(workers=2, device="cpu")
COMMIT = "0123456789abcdef0123456789abcdef01234567"

Vectors = np.ndarray[Any, np.dtype[np.float32]]


class Recipe(NamedTuple):
    """A model card: the string of a paper and of an ad-hoc query, what is pooled, where it is cut, length 1 or not."""

    paper: Callable[[Text], str]
    query: Callable[[Text], str]
    pooling: Callable[[torch.Tensor], torch.Tensor]
    length: int
    unit: bool = False


def separated(code: str = "") -> Callable[[Text], str]:
    return lambda text: code + text.title + "[SEP]" + text.abstract


def spaced(prefix: str = "") -> Callable[[Text], str]:
    return lambda text: prefix + " ".join(part for part in (text.title, text.abstract) if part)


def asked(prefix: str = "") -> Callable[[Text], str]:
    return lambda text: prefix + text.title


def first(states: torch.Tensor) -> torch.Tensor:
    return states[0]


def second(states: torch.Tensor) -> torch.Tensor:
    return states[1]


def mean(states: torch.Tensor) -> torch.Tensor:
    return states.mean(0)


SPECTER = Recipe(separated(), asked(), first, 512)
E5 = Recipe(spaced("query: "), asked("query: "), mean, 512, unit=True)
RECIPES = {
    **dict.fromkeys(("scibert", "specter", "scincl", "specter2_base"), SPECTER),
    **dict.fromkeys(("specter2", "specter2_adhoc_query", "specter2_classification", "specter2_regression"), SPECTER),
    **dict.fromkeys(("scincl_prx", "scincl_qry", "scincl_clf", "scincl_rgn"), SPECTER),
    "specter2_ctrl": Recipe(separated("[PRX] "), asked("[QRY] "), second, 512),
    "specter2_ctrl_qry": Recipe(separated("[QRY] "), asked("[QRY] "), second, 512),
    "specter2_ctrl_clf": Recipe(separated("[CLF] "), asked("[CLF] "), second, 512),
    "specter2_ctrl_rgn": Recipe(separated("[RGN] "), asked("[RGN] "), second, 512),
    **dict.fromkeys(("e5-small", "e5-base", "e5-large"), E5),
    "mpnet": Recipe(spaced(), asked(), mean, 384, unit=True),
    "minilm": Recipe(spaced(), asked(), mean, 256, unit=True),
}
PALS = {"scirepeval_pals_clf": 0, "scirepeval_pals": 1, "scirepeval_pals_qry": 2, "scirepeval_pals_rgn": 3}
"""Their numbers in the published weights."""
RECIPES |= dict.fromkeys(PALS, SPECTER)
ASPIRE = ("aspire-bm", "aspire-cs")
ENSEMBLE = {"specter2_ensemble": ("specter2", "specter2_ctrl")}


def texts_around(limit: int) -> list[Text]:
    """Return texts with every number of tokens near a limit, whatever a recipe adds, and odd ones."""
    return [
        *(Text(words(length), "") for length in (1, 513)),
        *(Text("", words(length, 3)) for length in (0, 1, 511)),
        *(Text("w1", words(length, 5)) for length in (0, 5000, *range(limit - 16, limit + 2))),
        Text("  \t ", " \n "),
        Text("w5 😀 w6", "👩‍🔬 w7"),
        Text("שלום w8", "عربي مرحبا"),
        Text("w1\0w2", "\0"),
        Text("w9 [SEP] w10", "w11 [MASK]"),
        Text(words(6), "W2 w3 w4. W5 w6! W7 😀? " + words(20)),
    ]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("hub")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_CACHE", str(folder))
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        patch.setattr(lock, "FILE", folder / "models.lock")
        patch.setattr(hub, "packaged", lambda name: None)
        for seed, (hub_id, _) in enumerate(registry.repositories(), 1):
            (repository(folder, hub_id) / "refs").mkdir(parents=True)
            (repository(folder, hub_id) / "refs" / "main").write_text(COMMIT)
            entry = next(each for each in entries() if hub_id in (each.get("hub"), each.get("adapter")))
            if hub_id == entry.get("adapter"):
                continue
            save = save_mpnet if "mpnet" in hub_id else save_pals if "pals" in hub_id else partial(save_bert, seed=seed)
            save(snapshot(folder, hub_id))
        yield folder


def entries() -> list[dict[str, Any]]:
    return [registry._entry(name) for name in registry.names()]


def repository(folder: Path, hub_id: str) -> Path:
    return folder / f"models--{hub_id.replace('/', '--')}"


def snapshot(folder: Path, hub_id: str) -> Path:
    return repository(folder, hub_id) / "snapshots" / COMMIT


def load(name: str, precision: str | None = None) -> tuple[Model, Encoder]:
    model = registry.resolve(name, precision)
    return model, kinds.find(model.spec.kind).load(model, None, CPU)


def plain_network(cache: Path, entry: dict[str, Any]) -> tuple[Any, Any]:
    """Return tokenizer and network as the model card loads them."""
    folder = snapshot(cache, entry["hub"])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if "adapter" not in entry:
        return tokenizer, AutoModel.from_pretrained(folder).eval()
    import adapters

    network = adapters.AutoAdapterModel.from_pretrained(folder)
    network.load_adapter(str(snapshot(cache, entry["adapter"])), set_active=True)
    return tokenizer, network.eval()


def reference(cache: Path, name: str, texts: Sequence[Text], role: Role) -> Vectors:
    if name in ENSEMBLE:
        parts = [reference(cache, part, texts, role) for part in ENSEMBLE[name]]
        return np.mean(parts, axis=0, dtype=np.float32)
    entry = registry._entry(name)
    if role == "query" and "query" in entry:
        return reference(cache, entry["query"], texts, role)
    folder = snapshot(cache, entry["hub"])
    if name in ASPIRE:
        return np.concatenate([test_aspire.one_by_one(folder, text) for text in texts])
    recipe = RECIPES[name]
    strings = [recipe.query(text) if role == "query" else recipe.paper(text) for text in texts]
    if name in PALS:
        return np.stack([plain_pals(folder, string, PALS[name]) for string in strings])
    tokenizer, network = plain_network(cache, entry)
    vectors = []
    for string in strings:
        inputs = tokenizer(string, truncation=True, max_length=recipe.length, return_tensors="pt")
        with torch.inference_mode():
            states = network(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
            vector = recipe.pooling(states.last_hidden_state[0])
        vectors.append((vector / vector.norm() if recipe.unit else vector).numpy())
    return np.stack(vectors)


def test_no_entry_is_left_out() -> None:
    fitted = {"lsa", "sentences", "word2vec", "word2vec-tfidf"}
    assert {*RECIPES, *ASPIRE, *ENSEMBLE, *fitted} == set(registry.names())


@pytest.mark.parametrize("name", [*RECIPES, *ASPIRE, *ENSEMBLE])
def test_vectors_are_those_of_the_authors(cache: Path, name: str) -> None:
    for part in ENSEMBLE.get(name, (name,)):
        for used in (part, registry._entry(part).get("query", part)):
            adapter = registry._entry(used).get("adapter")
            if adapter:
                pytest.importorskip("adapters")
                place = snapshot(cache, adapter)
                place.is_dir() or save_adapter(place, snapshot(cache, registry._entry(used)["hub"]), seed=len(adapter))
    model, encoder = load(name)
    texts = texts_around(model.spec.max_tokens + 2 if isinstance(model.spec, AspireSpec) else limit_of(name))
    expected = reference(cache, name, texts, "paper")
    close = 1e-4 if name in PALS else 1e-5
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=close)
    reduced = load(name, "bfloat16")[1].encode(texts)
    assert smallest_cosine(reduced, expected) >= 0.999
    assert not np.array_equal(reduced, expected)
    if name not in ASPIRE:
        queries = load(model.query)[1] if model.query else encoder
        asked_for = queries.encode(texts, "query")
        np.testing.assert_allclose(asked_for, reference(cache, name, texts, "query"), atol=close)


def limit_of(name: str) -> int:
    return RECIPES[ENSEMBLE.get(name, (name,))[0]].length
