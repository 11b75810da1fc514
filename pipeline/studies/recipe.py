"""Recipes: TOML files with all settings of one experiment."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.core.config import from_mapping
from pipeline.core.errors import InputError, nearest


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
        raise InputError(f"the recipe {path} lacks {', '.join(missing)}", "Recipes are complete: add the settings")
    return from_mapping(cls, values)


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
