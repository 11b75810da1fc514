"""Commits are locked from what the hub or the cache says, and used from then on; none is made up."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from pipeline.core.errors import CorruptError
from pipeline.encode import hub, lock, registry
from tests.encode.tiny import save_in_cache

OLD, NEW = "0" * 39 + "1", "0" * 39 + "2"


def test_the_cache_is_asked_where_the_hub_is_silent(cache: Path) -> None:
    save_in_cache(cache, "malteos/scincl", OLD)
    locked = {entry.hub: entry for entry in lock.resolve(registry.repositories())}
    assert (locked["malteos/scincl"].commit, locked["malteos/scincl"].origin) == (OLD, "cache")
    assert (locked["allenai/specter"].commit, locked["allenai/specter"].origin) == ("", "")
    assert {"allenai/specter2_base", "allenai/specter2", "allenai/specter2_adhoc_query"} <= set(locked)
    lock.write(locked.values())
    assert lock.read() == {"malteos/scincl@main": OLD}


def test_a_reference_that_is_no_commit_is_no_path(cache: Path) -> None:
    save_in_cache(cache, "malteos/scincl", OLD)
    (reference,) = cache.glob("models--malteos--scincl/refs/*")
    reference.write_text(f"../snapshots/{OLD}")
    assert hub.cached("malteos/scincl", reference.name) is None


def test_the_hub_comes_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_in_cache(cache, "malteos/scincl", OLD)
    answers = {"malteos/scincl": NEW, "org/new": None}
    monkeypatch.setattr(hub, "remote_commit", lambda name, asked: answers[name])
    locked = lock.resolve([*[("malteos/scincl", "main")] * 2, ("org/new", "main"), ("org/pin", OLD)])
    assert [(entry.commit, entry.origin) for entry in locked] == [(NEW, "hub"), ("", ""), (OLD, "models.toml")]


def test_a_hub_out_of_reach_is_asked_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def unreachable(self: object, name: str, **_: object) -> None:
        asked.append(name)
        raise requests.exceptions.ConnectionError("no route")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", unreachable)
    assert {entry.origin for entry in lock.resolve(registry.repositories())} == {""}
    assert len(asked) == 1


def test_a_locked_commit_holds_when_the_branch_moves(cache: Path) -> None:
    folder = save_in_cache(cache, "malteos/scincl", OLD)
    lock.write(lock.resolve([("malteos/scincl", "main")]))
    (folder.parent / NEW).symlink_to(folder)
    (cache / "models--malteos--scincl" / "refs" / "main").write_text(NEW)
    assert registry.resolve("scincl").spec.revision == OLD
    assert {listing.name: listing.revision for listing in registry.known_models()}["scincl"] == OLD
    lock.write([lock.Locked("malteos/scincl", "main", "", "")])
    assert lock.read() == {"malteos/scincl@main": OLD}
    lock.FILE.unlink()
    assert registry.resolve("scincl").spec.revision == NEW


@pytest.mark.parametrize("content", ["no toml", '"malteos/scincl@main" = "soon"'])
def test_a_damaged_lock_is_an_error(cache: Path, content: str) -> None:
    lock.FILE.write_text(content)
    with pytest.raises(CorruptError, match=r"models\.lock"):
        registry.resolve("scincl")
