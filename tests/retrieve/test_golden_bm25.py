"""BM25 rankings and tuning grids keep their bytes: digests of rankings of generated and of real texts.

``MDCR_GOLDEN=write`` writes the digests anew.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.corpus.reader import Text
from pipeline.measure.engines import average_precision
from pipeline.retrieve.base import Ranking
from pipeline.stages.tune import GRID_B, GRID_K1
from tests.retrieve.bm25 import Asked, analysed, by_index, grid_ranks, publish
from tests.retrieve.cases import exclusions

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("bm25")]

GOLDEN = Path(__file__).with_name("golden_bm25.json")
POINTS = [(0.9, 0.4), (1.2, 0.75), (2.1, 1.0), (0.5, 0.1), (0.0, 0.5), (1.5, 0.0)]


def digest(*columns: np.ndarray[Any, Any]) -> str:
    content = hashlib.sha256()
    for column in columns:
        content.update(column.tobytes())
    return content.hexdigest()


def ranking_digest(ranking: Ranking) -> str:
    return digest(ranking.query, ranking.row, ranking.score, ranking.rank)


def generated_texts(count: int = 2_000) -> list[Text]:
    """Words by Zipf's law, blanks, stop words alone, copies, words hundreds of times, other scripts."""
    rng = np.random.default_rng(20)
    texts: list[Text] = []
    for number in range(count):
        length = int(rng.choice([0, 1, 6, 40, 130, 400, 1_500], p=[0.03, 0.05, 0.2, 0.4, 0.22, 0.09, 0.01]))
        words = [f"w{n}x" for n in rng.zipf(1.25, length) % 3_000]
        words += [f"w{rng.integers(30)}x"] * int(rng.choice([0, 0, 0, 0, 0, 3, 7, 60, 300]))
        title = ["", "the of and", f"Runner's {number} été", "U.S.A. α-helix 中文 3.14"][int(rng.integers(4))]
        texts.append(Text(title, " ".join(words)))
        if number and rng.random() < 0.2:
            texts[-1] = texts[int(rng.integers(number))]
    texts[5], texts[6] = Text("", ""), Text("the of and", "is")
    return texts


def check(found: dict[str, Any], name: str) -> None:
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.is_file() else {}
    if os.environ.get("MDCR_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps({**golden, name: found}, indent=1, sort_keys=True) + "\n")
    else:
        assert found == golden[name]


def test_rankings_and_grid_of_generated_texts(tmp_path: Path) -> None:
    texts = generated_texts()
    queries = [5, 6, *range(7, len(texts), 25)]
    everyone = Asked.of(queries, range(len(texts)), exclusions([sorted({q, (q * 7) % 2_000}) for q in queries]))
    some = Asked.of(queries[::3], range(0, 2_000, 3))
    index = analysed(tmp_path, publish(tmp_path, texts), everyone, some)
    found: dict[str, Any] = {}
    for (pool, asked), (k1, b), depth in itertools.product({"all": everyone, "some": some}.items(), POINTS, (10, 500)):
        found[f"{pool} {k1} {b} {depth}"] = ranking_digest(by_index(index, asked, k1=k1, b=b, depth=depth))
    rng = np.random.default_rng(21)
    relevant = exclusions([np.unique(rng.integers(0, 2_000, 15 * (q % 5 > 0))).tolist() for q in queries])
    ranks = grid_ranks(index, everyone, relevant, list(itertools.product(GRID_K1, GRID_B)), depth=100)
    values = average_precision(ranks, relevant[0])
    found["grid ranks"], found["grid map"] = digest(ranks), np.nanmean(values, axis=0).round(12).tolist()
    check(found, "generated")
