"""Counts of a corpus by what papers lack, year and field, to judge it before use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.fields import FIELD_BIT
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.prefilter import Mask, PrefilterConfig, prefilter
from pipeline.corpus.reader import Corpus
from pipeline.scores.tables import Table, frame_table


def profile(corpus: Corpus, name: str) -> dict[str, Any]:
    """Return counts of the papers of a corpus as plain data.

    Papers that the prefilter keeps are not counted for a collection with its own queries, which is searched whole.
    """
    attributes, whole = corpus.attributes, corpus.has_query_texts()
    marks = {"with_abstract": attributes["abstract_chars"] > 0}
    marks |= {} if whole else {"prefiltered": prefilter(attributes, PrefilterConfig())[0]}
    by_year = pl.DataFrame({"year": attributes["year"], **marks}).group_by(pl.col("year").replace(NO_YEAR, None))
    years = by_year.agg(pl.len().alias("papers"), pl.exclude("year").sum()).sort("year", nulls_last=True)
    counts = {
        "papers": len(corpus),
        "with_title": int(np.count_nonzero(attributes["title_chars"])),
        "with_doi": int(np.count_nonzero(attributes["doi_key"])),
        **{mark: int(np.count_nonzero(marked)) for mark, marked in marks.items()},
        "references": int(attributes["n_outbound"].sum(dtype=np.int64)),
        "references_in_corpus": len(corpus.outgoing.indices),
    }
    facts = {"corpus": name, "artifact": corpus.artifact.name, "source": corpus.artifact.manifest.config["source"]}
    return facts | counts | {"years": years.to_dicts(), "fields": list(_fields(attributes["fields"], marks))}


def _fields(masks: Any, marks: Mapping[str, Mask]) -> Iterator[dict[str, Any]]:
    """Yield the counts of each field; a paper counts in each of its fields; papers without a field last."""
    for name, bit in (*FIELD_BIT.items(), (None, None)):
        in_field = masks == 0 if bit is None else (masks >> np.uint32(bit)) & np.uint32(1) == 1
        counts = {column: int(np.count_nonzero(in_field & marked)) for column, marked in marks.items()}
        yield {"field": name, "papers": int(np.count_nonzero(in_field)), **counts}


def profile_tables(profile: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the tables of a profile."""
    counts = [(name.replace("_", " "), count) for name, count in profile.items() if isinstance(count, int)]
    title = f"corpus {profile['corpus']} ({profile['source']}, {profile['artifact']})"
    yield frame_table("counts", title, pl.DataFrame(counts, ["counts", "number"], orient="row"))
    for corner in ("year", "field") if profile["papers"] else ():
        rows = pl.DataFrame(profile[f"{corner}s"]).with_columns(pl.col(corner).cast(pl.String).fill_null("none"))
        yield frame_table(corner, "", rows.rename(lambda name: name.replace("_", " ")))
