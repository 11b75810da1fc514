"""The study ``strangers``: other classes are neither relevant nor negative, and parts of a lead add up to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.api import open as open_workspace
from pipeline.studies.strangers import scores
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.releases import random_s2orc, write_s2orc

COMMAND = flags(
    "study strangers --corpus c --model bm25,lsa --set year=2019 --set size=300 --set queries=20 --set samples=1"
)


@pytest.fixture(scope="module")
def authored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace with a corpus of 900 papers by 200 people, most of which cite papers that resemble them."""
    rng, folder = np.random.default_rng(3), tmp_path_factory.mktemp("authored")
    records = [record | {"year": 2010 + place // 90} for place, record in enumerate(random_s2orc(900, 3))]
    ids = [record["paper_id"] for record in records]
    for place, record in enumerate(records):
        group = place % 50
        near = [ids[other] for other in range(group, place, 50)]
        people = rng.choice(4, rng.integers(1, 3), False) + 4 * group
        record["title"] = f"On w{group} and w{rng.integers(50)}"
        record["abstract"] = " ".join(f"w{word}" for word in rng.integers(0, 50, 20)) + f" w{group}" * 3
        record["authors"] = [{"first": f"F{n % 7}", "middle": [], "last": f"L{n // 2}", "suffix": ""} for n in people]
        record["outbound_citations"] = [*rng.choice(near, min(len(near), 5), False).tolist(), *rng.choice(ids, 3)]
        record["inbound_citations"], record["mag_field_of_study"] = [], ["Physics"]
    write_s2orc(folder / "release", records)
    open_workspace(folder).build("s2orc2020", folder / "release", corpus="c")
    return folder


def frame(ranks: list[int | None], classes: list[str]) -> pl.DataFrame:
    item = {"label": "a", "pool": "p", "query": 0, "field": "f", "size": 9, "sample": 1, "resolution": "full"}
    return pl.DataFrame(
        {"rank": ranks, "class": classes, "third": ["middle", *["least cited"] * (len(ranks) - 1)]},
        {"rank": pl.UInt32, "class": pl.String, "third": pl.String},
    ).with_columns(pl.lit(value).alias(name) for name, value in item.items())


def test_other_classes_are_neither_relevant_nor_negative() -> None:
    classes = ["self", "stranger", "collaborator", "stranger", "stranger", "unknown"]
    found = pl.concat(scores(frame([1, 2, 5, 7, None, 4], classes), 3))
    of = {(row["class"], row["third"], row["measure"]): row["value"] for row in found.iter_rows(named=True)}
    assert of["stranger", "all", "map"] == pytest.approx((1 / 1 + 2 / 4 + 0) / 3)  # ranks 1 and 4 of what is left
    assert of["stranger", "all", "recall@3"] == pytest.approx(1 / 3)
    assert of["collaborator", "all", "map"] == pytest.approx(1 / 2)  # rank 5 less the ranks 1, 2 and 4
    assert of["all", "all", "map"] == pytest.approx((1 + 1 + 3 / 4 + 4 / 5 + 5 / 7 + 0) / 6)
    assert of["all", "middle", "map"] == 1
    assert not {key for key in of if key[0] == "unknown"}


def test_the_study_agrees_with_scores_and_its_parts_add_up(authored: Path) -> None:
    tables = mdcr_json(authored, *COMMAND)["tables"]
    shares = pl.DataFrame(tables["shares"]).filter(third="all")
    assert shares.group_by("resolution").agg(pl.sum("value"))["value"].to_list() == pytest.approx([1, 1])
    assert shares.filter(pl.col("value") > 0)["class"].n_unique() > 2
    of_all = pl.DataFrame(tables["classes"]).filter(pl.col("class") == "all", third="all", measure="map")
    plain: dict[str, Any] = {row["system"]: row["value"] for row in tables["scores"] if row["measure"] == "map"}
    for row in of_all.iter_rows(named=True):
        assert row["value"] == pytest.approx(plain[row["label"]], abs=1e-9)
    parts = pl.DataFrame(tables["leads"]).drop_nulls("difference")
    for _, of_resolution in parts.group_by("resolution", "label"):
        total = dict(of_resolution.select("class", "difference").iter_rows())
        assert sum(total.values()) - total["all"] == pytest.approx(total["all"])


def test_a_pool_of_strangers_gives_the_map_of_their_class(authored: Path) -> None:
    pool = flags("--corpus c --year 2019 --size all --queries all --min-citations 0 --depth 900 --measures map")
    scored = mdcr_json(authored, "eval", "--model", "bm25,lsa", "--positives", "strangers", "--samples", "1", *pool)
    wanted = ["size=all", "queries=all", "samples=1", "depth=900"]
    tables = mdcr_json(authored, *COMMAND, *(f"--set={setting}" for setting in wanted))["tables"]
    of_class = pl.DataFrame(tables["classes"]).filter(
        pl.col("class") == "stranger", third="all", measure="map", resolution="initial"
    )
    assert {row["label"]: row["value"] for row in scored["rows"] if row["measure"] == "map"} == pytest.approx(
        dict(of_class.select("label", "value").iter_rows())
    )


def test_a_cutoff_beyond_the_depth_and_a_source_without_authors_are_named(authored: Path, root: Path) -> None:
    assert "cutoff must be from 1 to depth" in one_line_error(mdcr(authored, *COMMAND, "--set", "cutoff=9999"))
    tiny = [word.replace("c", "tiny") if word == "c" else word for word in COMMAND]
    assert "has no authors" in one_line_error(mdcr(root, *tiny, "--set", "size=400", "--set", "queries=15"))
