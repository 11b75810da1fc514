"""Coverage of the study ``strangers``: planted shares of self, collaborator and stranger, 500 draws of 40 queries.

``python -m bench.strangers [--draws 500] [--queries 40]``: papers are planted, written as a release of S2ORC, and read
back through the corpus, its authors and their classes. A later joint paper with a stranger must not count.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.api import open as open_workspace
from pipeline.corpus.authors import CLASSES, Authors
from pipeline.measure.design import Design, estimate
from pipeline.stages.corpus import authors_task
from pipeline.studies.strangers import shares

PLANTED = {"self": 0.15, "collaborator": 0.25, "stranger": 0.6}


def planted(queries: int, seed: int) -> tuple[list[dict[str, object]], list[tuple[str, str, str]]]:
    """Return papers of S2ORC, and the citations (query, cited, class); a query's shares vary about the planted ones."""
    rng = np.random.default_rng(seed)
    papers, citations = list[dict[str, object]](), list[tuple[str, str, str]]()

    def paper(year: int, *people: str) -> str:
        authors = [{"first": "A", "middle": [], "last": name, "suffix": ""} for name in people]
        papers.append({"paper_id": str(len(papers)), "title": f"T{len(papers)}", "year": year, "authors": authors})
        return str(len(papers) - 1)

    for query in range(queries):
        citing = paper(2019, f"q{query}", f"r{query}")
        paper(2012, f"q{query}", f"c{query}")
        people = {"self": f"r{query}", "collaborator": f"c{query}", "stranger": f"s{query}"}
        paper(2020, f"q{query}", f"s{query}")
        shares_of_query = rng.dirichlet(4 * np.array([*PLANTED.values()]))
        for name in rng.choice([*PLANTED], rng.integers(4, 13), p=shares_of_query):
            citations.append((citing, paper(2015, people[name]), str(name)))
    return papers, citations


def covered(draws: int, queries: int, seed: int = 13) -> pl.DataFrame:
    """Return by class the planted share, the mean estimate, and in how many draws the 95% interval has the share."""
    papers, citations = planted(draws * queries, seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "release")
        folder.mkdir()
        text = "\n".join(map(json.dumps, papers)).encode()
        (folder / "metadata_0.jsonl.gz").write_bytes(gzip.compress(text, 1))
        workspace = open_workspace(scratch)
        corpus = workspace.build("s2orc2020", folder, corpus="planted")
        (artifact,) = workspace.make([authors_task(corpus.artifact)])
        citing, cited = (corpus.rows_of([pair[place] for pair in citations]) for place in (0, 1))
        rows, owner = np.unique(citing, return_inverse=True)
        order = np.argsort(owner, kind="stable")
        places = Authors(artifact, corpus).classes(rows, 2019, owner[order], cited[order], "full")
        names = [CLASSES[place] for place in places]
    wrong = sum(name != citations[place][2] for name, place in zip(names, order, strict=True))
    print(f"{len(papers):,} papers, {len(citations):,} citations, {wrong} classified wrongly")
    facts = {"label": "a", "pool": "p", "field": "f", "size": 1, "sample": 1, "resolution": "full", "third": "middle"}
    frame = pl.DataFrame({"query": owner[order], "class": names}).with_columns(
        pl.lit(value).alias(name) for name, value in facts.items()
    )
    values = pl.concat(shares(frame)).filter(third="all").with_columns(draw=pl.col("query") // queries)
    found = estimate(values, Design(row=("class",), of=("draw",)), seed)
    share = pl.col("class").replace_strict(PLANTED, default=0.0, return_dtype=pl.Float64)
    held = (share >= pl.col("low")) & (share <= pl.col("high"))
    return found.group_by("class", maintain_order=True).agg(
        planted=share.first(), mean=pl.mean("value"), coverage=held.mean(), draws=pl.len()
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--queries", type=int, default=40)
    given = parser.parse_args()
    print(covered(given.draws, given.queries))
