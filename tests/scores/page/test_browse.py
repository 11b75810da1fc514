"""The query browser's data, beside the same in plain Python."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.scores.page.browse import browser, pack
from tests.scores.page.workspace import CITED, RUNS, ranked, scored, title


def unpacked(block: str) -> tuple[Any, dict[str, Any]]:
    data = gzip.decompress(base64.b64decode(block))
    line, _, _ = data.partition(b"\n")
    first = json.loads(line)
    body, found = -(-(len(line) + 1) // 4) * 4, {}
    for name, (kind, start, length) in first["columns"].items():
        part = data[body + start : body + start + length]
        assert (body + start) % 4 == 0
        found[name] = part.decode().split("\n") if kind == "text" else np.frombuffer(part, kind.lower())
    return first["header"], found


def test_blocks_hold_what_was_packed() -> None:
    columns = {name: np.arange(5, dtype=name) for name in ("uint8", "uint16", "int16", "uint32", "float32")}
    header, found = unpacked(pack({"a": "β"}, {"odd": ["one", "β two", ""], **columns}))
    assert header == {"a": "β"}
    assert found["odd"] == ["one", "β two", ""]
    assert all(found[name].tolist() == values.tolist() for name, values in columns.items())
    assert unpacked(pack({"low": [float("nan"), 0.5, float("inf")]}, {}))[0] == {"low": [None, 0.5, None]}
    assert unpacked(pack({}, {"broken": ["a\nb\u2028c", "d"]}))[1]["broken"] == ["a b c", "d"]


def test_positives_ranks_and_first_entries(tmp_path: Path) -> None:
    runs, scores = scored(tmp_path)
    found = browser(runs, scores, ("map", "ndcg"), top=2)
    assert sorted(found.pools) == ["Art, 8", "Physics, 8", "dataset level, 8"]
    assert "3 of 5 pools: the largest of each field in its first sample" in found.note
    for header, pool in map(unpacked, found.pools.values()):
        assert (header["systems"], header["measures"], header["top"]) == (["bm25", "lsa"], ["MAP", "NDCG"], 2)
        assert pool["query_titles"] == [title(query) for query in CITED]
        assert pool["query_years"].tolist() == [2000, 2001, 2002]
        papers, listed = list(map(int, pool["paper_ids"])), pool["listed"]
        ranks, top = pool["ranks"].reshape(2, -1), pool["top"].reshape(2, 3, 2)
        for query, cited in CITED.items():
            span = slice(pool["offsets"][query], pool["offsets"][query + 1])
            assert [papers[number] for number in listed[span]] == list(cited)
            for number, system in enumerate(header["systems"]):
                order = ranked(system, query)
                expected = [order.index(row) + 1 if row in order else 0 for row in cited]
                assert ranks[number, span].tolist() == expected
                first = [papers[paper] for paper in top[number, query] if paper < len(papers)]
                assert first == order[:2]
        assert set(pool["paper_titles"]) <= {title(row) for row in range(8)}
        for number, system in enumerate(RUNS):
            of_system = scores.filter(label=system, pool=header["facts"]["pool"], measure="map").sort("query")["value"]
            assert pool["values"].reshape(2, 2, -1)[0, number].tolist() == pytest.approx(of_system.to_list())
