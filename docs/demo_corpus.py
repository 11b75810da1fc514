"""Write the papers of the demo, pipeline/data/demo/papers.parquet.

Usage: python docs/demo_corpus.py METADATA.jsonl.gz, the papers of SYNERGY in the layout of S2ORC 2020.
"""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

PAPERS = Path(__file__).parents[1] / "pipeline" / "data" / "demo" / "papers.parquet"


def main(metadata: str) -> None:
    """Keep what a corpus needs, in the order of ids; references to papers that are not here cannot be resolved."""
    papers = pl.read_ndjson(metadata)
    here = papers["paper_id"].implode()
    papers.select(
        "paper_id",
        "title",
        "abstract",
        "year",
        "doi",
        fields="mag_field_of_study",
        references=pl.col("outbound_citations").list.set_intersection(here.first()).list.sort(),
    ).sort("paper_id").write_parquet(PAPERS, compression="zstd", compression_level=19, statistics=False)
    print(f"{PAPERS}: {papers.height:,} papers, {PAPERS.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:])
