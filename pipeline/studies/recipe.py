"""Recipes: TOML files with all settings of one experiment."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from pipeline.core import files
from pipeline.core.config import OMIT_DEFAULT, from_mapping
from pipeline.core.errors import InputError, nearest, require_known
from pipeline.core.settings import convert, marked, required, settings_of
from pipeline.corpus.poolconfig import SETTINGS
from pipeline.data import DATA

RECIPES = DATA / "recipes"
"""Folder of the project's recipes, which ``--recipe`` takes by name."""

Rules = tuple[tuple[str, Any], ...]
"""Optional settings of pools in a recipe, (name, value) pairs."""

NO_RULES: Any = dataclasses.field(default=(), metadata=OMIT_DEFAULT)
"""Default of the field ``rules`` of a recipe that accepts every setting of pools."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoolsRecipe:
    """Settings that recipes of pools have in common.

    Attributes:
        rules: further settings of pools in the recipe, such as ``min_citations``.
    """

    corpus: str = required("name of the corpus; empty: the only one")
    queries: str = required("number of queries of each pool, or all")
    seed: int = required("seed of every draw")
    systems: str = required("what ranks, with commas")
    depth: int = required("ranks kept per query")
    rules: Rules = NO_RULES


def helps(cls: type[Any]) -> dict[str, str]:
    """Return what each setting of a recipe means, by name: its fields, then the settings of pools if it has ``rules``.

    A field that declares no help has that of the setting of pools of its name.
    """
    of_pools = {name: setting.help for name, setting in SETTINGS.items()}
    own = {name: setting.help for name, setting in settings_of(cls).items()}
    names = [field.name for field in dataclasses.fields(cls)]
    rules = of_pools if "rules" in names else {}
    return {name: own.get(name) or of_pools.get(name, "") for name in (*names, *rules) if name != "rules"}


def replaced_systems(cls: type[Any], settings: Mapping[str, Any], systems: str) -> dict[str, Any]:
    """Return settings that replace all systems of a recipe by ``systems``, except fields that ``settings`` gives."""
    return {"systems": systems, **{name: systems for name in marked(cls, "systems") if name not in settings}}


def find_recipe(path: Path) -> Path:
    """Return the path of the project's recipe if ``path`` is its name, else ``path`` itself."""
    project_recipe = RECIPES / f"{path}.toml"
    return project_recipe if path.name == str(path) and not path.is_file() and project_recipe.is_file() else path


def read_recipe(path: Path, cls: type[Any], changes: Mapping[str, Any]) -> Any:
    """Read a recipe, a TOML file with exactly the fields of ``cls``; ``changes`` replace settings.

    If ``cls`` has a field ``rules``, the file may also give any setting of pools. Where a list is expected, a number is
    read as a list of one; in a list of texts, an integer is read as text.
    """
    values = _values(path)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.name != "rules"}
    rules = [name for name in SETTINGS if name not in fields] if "rules" in get_type_hints(cls) else []
    for name in changes:
        require_known(name, [*fields, *rules], f"the recipe {path} has no setting {name}")
    values |= changes
    missing = [name for name, field in fields.items() if name not in values and field.default is dataclasses.MISSING]
    if missing:
        raise InputError(f"the recipe {path} lacks {', '.join(missing)}", "A recipe gives every setting: add them")
    if given_rules := tuple((name, values.pop(name)) for name in rules if name in values):
        values["rules"] = given_rules
    types = get_type_hints(cls)
    for name, kind in types.items():
        if get_origin(kind) is tuple and type(value := values.get(name)) in (int, float):
            values[name] = [value]
        if kind == tuple[str, ...] and isinstance(value := values.get(name), list):
            values[name] = [str(item) if type(item) is int else item for item in value]
    conversions = {name: (value, types.get(name, Any), f"the setting {name}") for name, value in values.items()}
    return from_mapping(cls, {name: convert(*setting) for name, setting in conversions.items()})


def _values(path: Path) -> dict[str, Any]:
    remedy = nearest(path.stem, sorted(file.stem for file in RECIPES.glob("*.toml")))
    return files.given_toml(path, "the recipe", remedy)


def details_of(cls: type[Any], path: Path) -> dict[str, str]:
    """Return what each setting of a recipe means, with its value in the recipe at ``path`` or its default."""
    given = {name: declared.usual for name, declared in SETTINGS.items()}
    values = _values(path).items()
    given |= {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for name, value in values
    }
    return {name: f"{text} (default: {given[name]})" if given.get(name) else text for name, text in helps(cls).items()}


def pools_of(recipe: Any) -> dict[str, Any]:
    """Return the settings of pools in a recipe, by name; empty texts are left out."""
    settings = {
        field.name.replace("sizes", "size"): getattr(recipe, field.name) for field in dataclasses.fields(recipe)
    }
    return {name: value for name, value in settings.items() if name in SETTINGS and value != ""} | dict(recipe.rules)


def with_settings(texts: list[str]) -> dict[str, Any]:
    """Parse settings typed as ``name=value``, several separated by ``;``; a value is TOML, or else text."""
    settings = {}
    for pair in (pair for text in texts for pair in re.split(r";\s*(?=\w+\s*=)", text)):
        name, equals, value = pair.strip().removesuffix(";").partition("=")
        if not equals:
            raise InputError(f"--set must be name=value, got {pair!r}", "Write --set=samples=1")
        try:
            settings[name.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            settings[name.strip()] = value.strip()
    return settings
