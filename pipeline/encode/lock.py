"""``models.lock``, beside ``models.toml``: the commit of each branch when the user locked it, by hub or cache."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.errors import CorruptError
from pipeline.encode import hub

FILE = Path(__file__).with_name("models.lock")

_COMMIT = re.compile(r"[0-9a-f]{40}")
_HEAD = "# Written by `mdcr models lock`: the commit of each model and adapter, as the hub or the local cache said.\n"


@dataclass(frozen=True)
class Locked:
    """One repository of the hub.

    Attributes:
        hub: its id.
        asked: branch, tag or commit that ``models.toml`` names.
        commit: empty where neither the hub nor the cache knows it.
        origin: ``hub``, ``cache`` or ``models.toml``; empty where unknown.
    """

    hub: str
    asked: str
    commit: str
    origin: str


def read() -> dict[str, str]:
    """Return the locked commits by ``HUB@BRANCH``; empty where nothing is locked.

    Raises:
        CorruptError: the file is damaged.
    """
    if not FILE.is_file():
        return {}
    try:
        values: dict[str, str] = tomllib.loads(FILE.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise CorruptError(f"{FILE} is damaged ({error})", "Remove it and run: mdcr models lock") from error
    wrong = [key for key, commit in values.items() if not _COMMIT.fullmatch(str(commit))]
    if wrong:
        raise CorruptError(f"{FILE} has no commit for {wrong[0]}", "Remove it and run: mdcr models lock")
    return values


def resolve(repositories: Iterable[tuple[str, str]]) -> list[Locked]:
    """Return the commit of each (hub id, revision), from the hub or the cache; an unreachable hub is tried once."""
    locked = []
    reached = True
    for name, revision in sorted(set(repositories)):
        commit, origin = (revision, "models.toml") if _COMMIT.fullmatch(revision) else ("", "")
        if not commit and reached:
            try:
                commit, origin = hub.remote_commit(name, revision) or "", "hub"
            except ConnectionError:
                reached = False
        if not commit:
            commit, origin = hub.cached_commit(name, revision) or "", "cache"
        locked.append(Locked(name, revision, commit, origin if commit else ""))
    return locked


def write(locked: Iterable[Locked]) -> None:
    """Write the known commits; earlier ones stay where no newer one is known."""
    from pipeline.core import files

    values = read() | {f"{entry.hub}@{entry.asked}": entry.commit for entry in locked if entry.commit}
    lines = [f'"{key}" = "{commit}"\n' for key, commit in sorted(values.items())]
    with files.disk_errors(FILE.parent):
        files.write_text(FILE, _HEAD + "".join(lines))
