"""Recipes: their studies and help."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pipeline.studies.base import STUDIES, find
from pipeline.studies.recipe import RECIPES, helps, read_recipe
from pipeline.train.recipe import Recipe
from tests.cli.run import mdcr

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


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_a_recipe_is_one_of_its_study(path: Path) -> None:
    name = ALSO_OF.get(path.stem, path.stem)
    assert read_recipe(path, Recipe if name == "train" else find(name).recipe, {})


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
