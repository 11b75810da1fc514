"""The Arrow schema of every table that passes between rooms."""

from __future__ import annotations

import pyarrow as pa

SHARD_ROWS = 65_536
"""Papers a corpus shard holds; the last one holds the rest."""

PAPERS = pa.schema(
    [
        pa.field("paper_id", pa.large_string(), nullable=False),
        pa.field("title", pa.large_string(), nullable=False),
        pa.field("abstract", pa.large_string(), nullable=False),
        pa.field("year", pa.int16()),
        pa.field("fields", pa.list_(pa.dictionary(pa.int8(), pa.string())), nullable=False),
        pa.field("n_outbound", pa.int32(), nullable=False),
        pa.field("n_inbound", pa.int32(), nullable=False),
    ]
)
"""A corpus shard, ``papers-00000.arrow``: sorted by paper_id (by code point, which is UTF-8 byte order). Texts are
normalised; a missing title or abstract is empty; counts are of distinct ids as the release lists them, self removed."""

ATTRIBUTES = pa.schema(
    [
        pa.field("key", pa.uint64(), nullable=False),
        pa.field("title_key", pa.uint64(), nullable=False),
        pa.field("fields", pa.uint32(), nullable=False),
        pa.field("year", pa.int16(), nullable=False),
        pa.field("n_outbound", pa.int32(), nullable=False),
        pa.field("n_inbound", pa.int32(), nullable=False),
        pa.field("title_chars", pa.int32(), nullable=False),
        pa.field("abstract_chars", pa.int32(), nullable=False),
        pa.field("doi_key", pa.uint64(), nullable=False),
    ]
)
"""What filtering and sampling need of every paper, in row order, one file, ``attributes.arrow``. ``year`` is
:data:`NO_YEAR` where the release has none; ``fields`` is a mask of :data:`pipeline.core.fields.FIELD_BIT`;
``title_key`` and ``doi_key`` are 0 where there is nothing to compare."""

NO_YEAR = -32_768

INDPTR = pa.schema([pa.field("offset", pa.int64(), nullable=False)])
INDICES = pa.schema([pa.field("row", pa.uint32(), nullable=False)])
"""CSR of the citation graph: ``outgoing-indptr.arrow`` (papers + 1 offsets) with ``outgoing-indices.arrow`` (cited
rows, rising within a paper), and ``incoming-*`` the other way."""

QUERY_TEXTS = pa.schema(
    [
        pa.field("query_id", pa.large_string(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
    ]
)
"""Queries that are no papers (BEIR, TREC), sorted by query_id, ``queries.arrow`` of a corpus."""

JUDGEMENTS = pa.schema(
    [
        pa.field("query", pa.uint32(), nullable=False),
        pa.field("row", pa.uint32(), nullable=False),
        pa.field("grade", pa.int16(), nullable=False),
    ]
)
"""Judgements. In a corpus (``judgements.arrow``) and in a pool (``qrels.arrow``), sorted by query, then row; ``query``
is the position in the queries table beside it."""

MISSING = pa.schema(
    [
        pa.field("query", pa.uint32(), nullable=False),
        pa.field("grade", pa.int16(), nullable=False),
    ]
)
"""Judgements of a grade of 1 or more whose paper the corpus does not have, ``missing.arrow`` of a corpus and of a pool
with query texts, sorted by query, then grade."""

POOL_QUERIES = pa.schema(
    [
        pa.field("row", pa.uint32(), nullable=False),
        pa.field("field", pa.string()),
    ]
)
"""Queries of a pool, ``queries.arrow``: rising rows of the corpus's papers, or of its query texts where the manifest's
config says ``queries_are = "texts"``."""

CANDIDATES = pa.schema([pa.field("row", pa.uint32(), nullable=False)])
"""Candidates of a pool, rising rows, ``candidates.arrow``."""

EXCLUSIONS = pa.schema(
    [
        pa.field("query", pa.uint32(), nullable=False),
        pa.field("row", pa.uint32(), nullable=False),
    ]
)
"""Candidates that are removed from one query's ranking before ranks are counted: the query itself and, by setting,
papers of its own title. ``exclusions.arrow`` of a pool, and of a corpus whose release names any; sorted by query, then
row."""

RANKING = pa.schema(
    [
        pa.field("query", pa.uint32(), nullable=False),
        pa.field("row", pa.uint32(), nullable=False),
        pa.field("score", pa.float32(), nullable=False),
        pa.field("rank", pa.uint16(), nullable=False),
    ]
)
"""A ranking, ``ranking.arrow``: entries in final order (query, then rank from 1). ``query`` is the position in the
pool's queries table. Higher scores are better; a squared L2 distance stands negated."""

WEIGHTS = pa.schema(
    [
        pa.field("weights", pa.list_(pa.float64()), nullable=False),
        pa.field("map", pa.float64(), nullable=False),
    ]
)
"""Weights tried for a weighted sum, ``grid.arrow``: one a system, with the mean average precision they give."""

TUNING = pa.schema(
    [
        pa.field("k1", pa.float64(), nullable=False),
        pa.field("b", pa.float64(), nullable=False),
        pa.field("map", pa.float64(), nullable=False),
    ]
)
"""A tuning, ``grid.arrow``: mean average precision, a fraction, of BM25 at each point, sorted by k1, then b."""

SCORES = pa.schema(
    [
        pa.field("system", pa.string(), nullable=False),
        pa.field("pool", pa.string(), nullable=False),
        pa.field("sample", pa.int16(), nullable=False),
        pa.field("query", pa.uint32(), nullable=False),
        pa.field("measure", pa.string(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
    ]
)
"""Scores, ``scores.arrow``: one row a (system, pool, sample, query, measure), values as fractions."""


def vectors(dimension: int, storage: str) -> pa.Schema:
    """Return the schema of a vector shard: ``row`` rising (repeated where a paper has several vectors), ``vector``.

    Arrow has no bfloat16: such vectors are stored as their bits, uint16.
    """
    value = {"float32": pa.float32(), "float16": pa.float16(), "bfloat16": pa.uint16()}[storage]
    return pa.schema(
        [
            pa.field("row", pa.uint32(), nullable=False),
            pa.field("vector", pa.list_(pa.field("item", value, nullable=False), dimension), nullable=False),
        ]
    )
