"""A made-up collection in CSFCube's layout."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

WORDS = [f"{letter}{number}" for letter in "abcde" for number in range(8)]
QUERIES = {"method": ["100", "101", "102"], "background": ["100", "103"], "result": ["101", "102"]}
TEXTLESS = "29"


def document(paper: str) -> dict[str, Any]:
    """Return a paper: a sentence of each label, of words that depend on its number."""
    chance = np.random.default_rng(int(paper))
    labels = ["background_label", "method_label", "result_label", "other_label"]
    sents = ["We " + " ".join(chance.choice(WORDS, 6)) + "." for _ in labels]
    return {
        "corpusid": int(paper),
        "year": 2000,
        "title": f"On {WORDS[int(paper) % 40]}",
        "sents": sents,
        "labels": labels,
    }


def write(folder: Path) -> Path:
    """Write 30 candidates (the last without text), four query papers, judged pools of 20, folds and citations."""
    folder.mkdir(parents=True)
    papers = [document(str(number)) for number in [*range(29), *range(100, 104)]]
    papers[-1]["labels"][0] = "objective_label"
    papers.append({"corpusid": int(TEXTLESS), "title": "", "sents": [], "labels": []})
    lines = "".join(json.dumps(each) + "\n" for each in papers)
    (folder / "docs.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    chance = np.random.default_rng(7)
    for facet, queries in QUERIES.items():
        judged = {}
        for query in queries:
            cands = [*map(str, chance.choice(29, 19, replace=False)), TEXTLESS]
            first, second = (chance.integers(0, 4, 20) for _ in range(2))
            first[:2] = 3
            grades = {"relevance_ann1": first.tolist(), "relevance_ann2": second.tolist()}
            judged[query] = {"cands": cands, **grades, "relevance_adju": first.tolist()}
        edit(folder / f"test-pid2anns-mine-{facet}.json", judged)
    splits = {
        facet: {"fold1_test": [f"{queries[0]}_{facet}"], "fold2_test": [f"{each}_{facet}" for each in queries[1:]]}
        for facet, queries in QUERIES.items()
    }
    edit(folder / "evaluation_splits.json", splits)
    cited = [(query, paper) for query in ("100", "101", "102", "103") for paper in judged_of(folder, query)[:3]]
    (folder / "cited_pairs.tsv").write_text("".join(f"{query}\t{paper}\n" for query, paper in cited))
    return folder


def judged_of(folder: Path, query: str) -> list[str]:
    """Return the candidates of a query paper in the first facet that has it."""
    facet = next(facet for facet, queries in QUERIES.items() if query in queries)
    return list(annotations(folder, facet)[query]["cands"])


def annotations(folder: Path, facet: str) -> Any:
    return json.loads((folder / f"test-pid2anns-mine-{facet}.json").read_text())


def edit(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))
