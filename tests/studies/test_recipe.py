"""Recipes: their JSON schemas."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from pipeline.corpus.poolconfig import SETTINGS
from pipeline.studies.base import STUDIES, find
from pipeline.studies.recipe import RECIPES, helps, schema_of
from pipeline.train.recipe import Recipe
from tests.cli.run import mdcr

SCHEMAS = {**{name: schema_of(find(name).recipe) for name in STUDIES}, "train": schema_of(Recipe)}
ALSO_OF = {"crossover_real": "crossover", "overlap_real": "overlap", "train_past": "train", "train_physics": "train"}
ALSO_OF |= dict.fromkeys(("dataset_level", "field_level", "million", "s2orc_real", "synthetic_1m"), "large_scale")
ALSO_OF |= {
    "mdcr_paper": "mdcr",
    "mdcr_small": "mdcr",
    "neighbours_paper": "neighbours",
    "facets_paper": "facets",
    "multi_format_paper": "multi_format",
    "specter_id": "train",
}


def errors(name: str, values: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft202012Validator(SCHEMAS[name]).iter_errors(values)]


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_a_recipe_is_valid_by_the_schema_of_its_study_alone(path: Path) -> None:
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    assert [name for name in SCHEMAS if not errors(name, values)] == [ALSO_OF.get(path.stem, path.stem)]


def test_a_schema_refuses_what_a_recipe_refuses_and_says_what_each_setting_means(tmp_path: Path) -> None:
    values = tomllib.loads((RECIPES / "pool_size.toml").read_text(encoding="utf-8"))
    assert not errors("pool_size", {**values, "min_citations": 2, "exclude": ["ids.txt"], "drop_near_duplicates": True})
    for changed in ({"min_citation": 2}, {"min_citations": "few"}, {"depth": "deep"}, {"positives": "some"}):
        assert errors("pool_size", {**values, **changed})
    shown = mdcr(tmp_path, "study", "pool_size", "--schema").stdout
    properties = json.loads(shown)["$defs"]["Recipe"]["properties"]
    assert properties["min_citations"]["description"] == SETTINGS["min_citations"].help
    assert properties["depth"]["description"] == "ranks kept per query"


@pytest.mark.parametrize("recipe", [*(find(name).recipe for name in STUDIES), Recipe], ids=[*STUDIES, "train"])
def test_every_setting_of_a_recipe_says_what_it_means(recipe: type[Any]) -> None:
    assert [name for name, text in helps(recipe).items() if not text] == []


def test_help_of_a_study_says_what_each_setting_means_and_its_default(tmp_path: Path) -> None:
    shown = " ".join(mdcr(tmp_path, "study", "pool_size", "--help").stdout.split())
    values = tomllib.loads((RECIPES / "pool_size.toml").read_text(encoding="utf-8"))
    for name, text in helps(find("pool_size").recipe).items():
        assert text
        assert f" {name} {text}" in shown
    for name, value in values.items():
        typed = value if isinstance(value, str) else json.dumps(value)
        assert not typed or f"(default: {typed})" in shown, name
    assert "settings of its recipe" not in mdcr(tmp_path, "study", "--help").stdout
    assert mdcr(tmp_path, "study", "pool_siz", "--help").stderr.strip().endswith("Did you mean 'pool_size'?")
