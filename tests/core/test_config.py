from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pipeline.core.config import (
    canonical,
    digest,
    file_name,
    format_count,
    from_mapping,
    identity,
    parse_bytes,
    parse_count,
)
from pipeline.core.errors import InputError


@dataclass(frozen=True)
class Settings:
    name: str
    depth: int = 500
    grid: tuple[float, ...] = (0.5, 0.7)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Computer Science", "Computer-Science"),
        ("/../../x", "x"),
        ("a\nb\0c\u202ed", "a-b-c-d"),
        ("long " * 100, "-".join(["long"] * 20)),
    ],
)
def test_names_of_files_hold_no_path(text: str, name: str) -> None:
    assert file_name(text) == file_name(name) == name


def test_identity_differs_in_every_field_and_is_pinned_so_that_published_artifacts_stay_found() -> None:
    given = {"stage": "search", "version": 1, "config": Settings("a"), "inputs": {"pool": "p"}}
    base = identity(**given)  # type: ignore[arg-type]
    assert base == identity("search", 1, Settings("a", 500, (0.5, 0.7)), {"pool": "p"})
    configs = [replace(Settings("a"), **change) for change in ({"name": "b"}, {"depth": 501}, {"grid": (0.5,)})]
    changes = [{"stage": "score"}, {"version": 2}, {"inputs": {"pool": "q"}}, *({"config": c} for c in configs)]
    assert len({base, *(identity(**{**given, **change}) for change in changes)}) == 7  # type: ignore[arg-type]
    assert len({digest({"size": value}) for value in (1, "1", 1.0)}) == 3
    assert digest({"b": 1, "a": [None, True, 0.5, "é"]}) == (
        "33b193b81ee9d09a2447a6b6c3a8850f041b1a509f328e9b4ab19489383f9208"
    )


@pytest.mark.parametrize("value", [Path("x"), {1, 2}, object(), b"x", float("nan"), {1: 2}])
def test_what_has_no_stable_spelling_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        canonical({"setting": value})


def test_unknown_setting_names_the_nearest() -> None:
    assert from_mapping(Settings, {"name": "a", "grid": [1.0]}) == Settings("a", 500, (1.0,))
    with pytest.raises(InputError, match="'depht'.*Did you mean 'depth'"):
        from_mapping(Settings, {"name": "a", "depht": 3})


@pytest.mark.parametrize(
    ("text", "number"), [("200k", 200_000), ("2M", 2_000_000), ("1.5M", 1_500_000), ("380", 380), ("1_000", 1000)]
)
def test_counts_as_users_write_them(text: str, number: int) -> None:
    assert parse_count(text, "--size") == parse_count(format_count(number), "--size") == number


@pytest.mark.parametrize("text", ["", "many", "-5", "0", "1.2345k5", "2MM", "0.5", "nan"])
def test_a_size_that_is_no_number_is_refused_by_name(text: str) -> None:
    with pytest.raises(InputError, match="--size must be a whole number of at least 1, got"):
        parse_count(text, "--size")


def test_bytes() -> None:
    assert [parse_bytes(text) for text in ("4G", "500M", "1.5 GiB")] == [4 * 2**30, 500 * 2**20, 3 * 2**29]
    with pytest.raises(InputError, match="memory"):
        parse_bytes("lots")
