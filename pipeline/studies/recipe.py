"""Recipes: TOML files with all settings of one experiment."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pipeline.core.config import from_mapping
from pipeline.core.errors import InputError, nearest

REPLACED = {"systems": "replaced"}
"""Metadata of a field beside ``systems`` that names systems with commas: ``--model`` replaces it too."""

KEPT = {"systems": "kept"}
"""Metadata of a field that names systems which ``--model`` cannot replace."""


def replaced_systems(cls: type[Any], settings: Mapping[str, Any], systems: str) -> dict[str, Any]:
    """Return the settings of a recipe in which ``systems`` replace all others; those of ``settings`` stay."""
    others = (each.name for each in dataclasses.fields(cls) if each.metadata.get("systems") == "replaced")
    return {"systems": systems, **{name: systems for name in others if name not in settings}}


def refuse_kept(recipe: Any, settings: Mapping[str, Any]) -> None:
    """Refuse to replace the systems of a recipe that has some which cannot be replaced; ``settings`` may name them.

    Raises:
        InputError: it has; the message names the setting.
    """
    for each in dataclasses.fields(recipe):
        value = getattr(recipe, each.name)
        if value and each.name not in settings and each.metadata.get("systems") == "kept":
            raise InputError(
                f"--model must replace all systems of a recipe, which cannot be done of {each.name}, got {value!r}",
                f"Write --set {each.name}= to leave it out, or --set {each.name}={value} to keep it",
            )


def read_recipe(path: Path, cls: type[Any], changes: Mapping[str, Any]) -> Any:
    """Read a recipe, a TOML file of all fields of ``cls`` and no other; ``changes`` replace settings.

    Raises:
        InputError: the file cannot be read or is not TOML, a setting is missing, unknown or of another type.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"the recipe {path} cannot be read ({error})", "Give a TOML file with --recipe") from error
    fields = {each.name: each for each in dataclasses.fields(cls)}
    for name in changes:
        if name not in fields:
            raise InputError(f"the recipe {path} has no setting {name}", nearest(name, fields))
    values |= changes
    missing = [name for name, each in fields.items() if name not in values and each.default is dataclasses.MISSING]
    if missing:
        raise InputError(f"the recipe {path} lacks {', '.join(missing)}", "A recipe gives every setting: add them")
    kinds = get_type_hints(cls)
    return from_mapping(cls, {name: _typed(name, value, kinds.get(name)) for name, value in values.items()})


def _typed(name: str, value: Any, kind: Any) -> Any:
    """Return a setting's value if it is of the type of its field; a number may stand for a text.

    Raises:
        InputError: it is of another type.
    """
    if kind is str and type(value) is int:
        return str(value)
    if not _fits(value, kind):
        origin, inner = get_origin(kind), get_args(kind)
        lists, choices = "texts" if str in inner else "numbers", ", ".join(map(str, inner))
        names = {int: "a whole number", bool: "true or false", Mapping: "a table", tuple: f"a list of {lists}"}
        allowed = f"one of {choices}" if origin is Literal else names.get(origin or kind, "text")
        raise InputError(
            f"the setting {name} must be {allowed}, got {value!r}", "Change it in the recipe or with --set"
        )
    return value


def _fits(value: Any, kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        return isinstance(value, list | tuple) and all(_fits(each, inner[0]) for each in value)
    if origin is Mapping:
        return isinstance(value, dict) and all(_fits(each, inner[1]) for each in value.values())
    if kind is float:
        return type(value) in (int, float)
    return kind in (None, Any) or type(value) is kind


def with_settings(pairs: list[str]) -> dict[str, Any]:
    """Read settings typed as ``name=value``; a value is TOML, or else text.

    Raises:
        InputError: one has no ``=``.
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set must be name=value, got {pair!r}", "Write --set samples=1")
        try:
            found[name.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[name.strip()] = value
    return found
