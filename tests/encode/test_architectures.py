"""Today's encoders by construction: small random models of each architecture, saved in their authors' layout.

Each entry gives, for each role, the vectors that sentence-transformers gives for its strings, alone and in a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, PreTrainedTokenizerFast

from pipeline.corpus.reader import Text
from pipeline.encode import names
from pipeline.stages.embed import query_paper_model
from tests.encode.tiny import CPU, SMALL, commit_of, load, snapshot, words

COMMON = {**SMALL, "vocab_size": 260, "max_position_embeddings": 514, "pad_token_id": 0}
DECODER = {**COMMON, "num_key_value_heads": 2, "head_dim": 8}
TEXTS = [
    Text(words(4), words(30, 5)),
    Text("", words(9, 3)),
    Text(words(5, 1), ""),
    *(Text(words(3 + number, number), words(11 * number + 1, number)) for number in range(12)),
]
QUERIES = ["w1 w2 w3", "w9", "w5 w6 w7 w8 w9 w10"]


def config(kind: str, **values: Any) -> Any:
    """Return the configuration of an architecture."""
    return getattr(transformers, f"{kind}Config")(**{**COMMON, **values})


def ends(template: str) -> Callable[[Any], Any]:
    """Return a tokenizer's post-processing, such as an end mark behind a text."""
    return lambda marks: processors.TemplateProcessing(single=template, pair=None, special_tokens=marks)


BERT, LAST = ends("<s> $A </s>"), ends("$A </s>")
DENSE = (Dense(32, 64, bias=False, activation_function=torch.nn.Identity()),)
DENSE += (Dense(64, 32, bias=False, activation_function=torch.nn.Identity()),)


class Built(NamedTuple):
    """Architecture, end marks, pooling, layers behind it, saved prompts, side of the padding."""

    config: Any
    marks: Any = BERT
    pooling: str = "cls"
    layers: tuple[Any, ...] = ()
    prompts: Mapping[str, str] = {}
    side: str = "right"


GEMMA = config("Gemma3Text", **DECODER, use_bidirectional_attention=True, sliding_window=64)
DEBERTA = config("DebertaV2", type_vocab_size=0, relative_attention=True, pos_att_type=["p2c", "c2p"])
ROBERTA, MODERN = config("XLMRoberta", type_vocab_size=1), config("ModernBert", local_attention=16)
ARCHITECTURES = {
    "qwen3-0.6b": Built(config("Qwen3", **DECODER), LAST, "lasttoken", prompts={"query": "w1 w2 "}, side="left"),
    "e5-mistral": Built(config("Mistral", **DECODER), BERT, "lasttoken", side="left"),
    "embeddinggemma": Built(GEMMA, BERT, "mean", DENSE, {"query": "w3 ", "document": "w4 "}),
    "gte-modernbert": Built(MODERN),
    "modernbert-embed": Built(MODERN, BERT, "mean"),
    "bge-m3": Built(ROBERTA),
    "arctic-embed-l": Built(ROBERTA, prompts={"query": "w7 "}),
    "multilingual-e5-large": Built(ROBERTA, BERT, "mean"),
    "bge-large": Built(config("Bert")),
    "mpnet": Built(config("MPNet"), BERT, "mean"),
    "semcse": Built(DEBERTA),
}


def save(folder: Path, name: str) -> Path:
    """Save a small random model in the layout of an entry's authors."""
    configuration, marks, pooling, layers, prompts, side = ARCHITECTURES[name]
    torch.manual_seed(3)
    network = AutoModel.from_config(configuration)
    network.save_pretrained(folder)
    pieces = ("<pad>", "<s>", "</s>", "<unk>", *(f"w{number}" for number in range(200)), "Query", "Instruct", ":", "|")
    tokenizer = Tokenizer(models.WordLevel({piece: place for place, piece in enumerate(pieces)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = marks([("<s>", 1), ("</s>", 2)])
    named = zip(
        ("pad", "bos", "eos", "cls", "sep", "unk"), ("<pad>", "<s>", "</s>", "<s>", "</s>", "<unk>"), strict=True
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{f"{mark}_token": text for mark, text in named},
        model_max_length=512,
        padding_side=side,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)
    if name != "semcse":  # its authors publish a plain transformer
        text = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
        first = Transformer(str(folder), modality_config=text, module_output_name="token_embeddings")
        modules = [first, Pooling(32, pooling), *layers, Normalize()]
        SentenceTransformer(modules=modules, device="cpu", prompts=prompts).save(str(folder))
    return folder


def strings(name: str) -> dict[str, list[str]]:
    """Return what an entry's authors feed it, by role."""
    entry = names.entries()[name]
    asking, ad_hoc = entry.get("query_paper_prefix", ""), entry.get("query_prefix", "")
    if name == "embeddinggemma":
        papers = [f"title: {text.title or 'none'} | text: {text.abstract}" for text in TEXTS]
    elif name == "semcse":
        papers = [f"{text.title}</s>{text.abstract}" for text in TEXTS]
    else:
        papers = [entry.get("paper_prefix", "") + " ".join(filter(None, text)) for text in TEXTS]
    return {"paper": papers, "query_paper": [asking + text for text in papers], "query": [ad_hoc + q for q in QUERIES]}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_entry_gives_the_vectors_of_sentence_transformers(cache: Path, name: str) -> None:
    entry = names.entries()[name]
    folder = save(snapshot(cache, entry["hub"], commit_of(entry)), name)
    if name == "semcse":
        first = Transformer(str(folder))
        peer = SentenceTransformer(modules=[first, Pooling(32, "cls")], device="cpu")
    else:
        peer = SentenceTransformer(str(folder), device="cpu")
    model, encoder = load(f"{name}:max_length=512")
    texts = {"paper": TEXTS, "query_paper": TEXTS, "query": [Text(query, "") for query in QUERIES]}
    for role, fed in strings(name).items():
        apart = np.concatenate([peer.encode([one], prompt="") for one in fed])  # alone: without any padding
        together = peer.encode(fed, prompt="")
        asked = query_paper_model(model) if role == "query_paper" else model
        ours = asked.load(None, CPU)
        vectors = ours.encode(texts[role], role)
        alone = np.concatenate([ours.encode([text], role) for text in texts[role]])
        half = replace(asked, compute="bfloat16")
        rounded = half.load(None, CPU).encode(texts[role], role)
        assert np.ptp(vectors, axis=0).max() > 0.01
        assert asked.identity == model.identity or np.abs(vectors - encoder.encode(TEXTS)).max() > 0.01
        for ours_by, theirs in ((alone, apart), (vectors, apart), (vectors, together)):
            np.testing.assert_allclose(ours_by, theirs, rtol=0, atol=1e-5)
        assert 1e-5 < np.abs(rounded - apart).max() <= 0.05
