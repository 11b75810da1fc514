"""Arrow schemas of the tables that stages exchange."""

from __future__ import annotations

import pyarrow as pa

SHARD_ROWS = 65_536
"""Papers of a corpus shard; the last shard has fewer."""


def schema_of(nullable: str = "", **types: pa.DataType) -> pa.Schema:
    """Return a schema of columns; only column ``nullable`` may hold nulls."""
    return pa.schema([pa.field(name, kind, nullable=name == nullable) for name, kind in types.items()])


PAPERS = schema_of(
    paper_id=pa.large_string(),
    title=pa.large_string(),
    abstract=pa.large_string(),
    year=pa.int16(),
    fields=pa.list_(pa.dictionary(pa.int8(), pa.string())),
    n_outbound=pa.int32(),
    n_inbound=pa.int32(),
    nullable="year",
)
"""A corpus shard, ``papers-00000.arrow``: sorted by paper_id (by code point, which is UTF-8 byte order). Texts are
normalised; a missing title or abstract is empty; abstracts with given sentences have one sentence a line
(:func:`pipeline.core.text.one_a_line`); counts are of distinct ids in the release, without the paper itself."""

ATTRIBUTES = schema_of(
    key=pa.uint64(),
    title_key=pa.uint64(),
    fields=pa.uint32(),
    year=pa.int16(),
    n_outbound=pa.int32(),
    n_inbound=pa.int32(),
    title_chars=pa.int32(),
    abstract_chars=pa.int32(),
    doi_key=pa.uint64(),
)
"""Attributes of all papers for filtering and sampling, in row order, ``attributes.arrow``. ``year`` is :data:`NO_YEAR`
if the release has none; ``fields`` is a mask of :data:`pipeline.core.fields.FIELD_BIT`; ``title_key`` and ``doi_key``
are 0 if there is nothing to compare."""

NO_YEAR = -32_768

INDPTR = schema_of(offset=pa.int64())
INDICES = schema_of(row=pa.uint32())
"""CSR of the citation graph: ``outgoing-indptr.arrow`` (papers + 1 offsets) with ``outgoing-indices.arrow`` (cited
rows, rising within a paper), and ``incoming-*`` for citing rows."""

AUTHORS = schema_of(key=pa.uint64())
"""Keys of the authors of all papers by one resolution (:data:`pipeline.sources.authors.RESOLUTIONS`), such as
``full-keys.arrow`` with the offsets ``full-indptr.arrow`` (:data:`INDPTR`)."""

QUERY_TEXTS = schema_of(query_id=pa.large_string(), text=pa.large_string())
"""Queries that are not papers (BEIR, TREC), sorted by query_id, ``queries.arrow`` of a corpus; given sentences are one
a line, as in abstracts."""

CONTEXTS = schema_of(year=pa.int16(), citing=pa.int64())
"""Years of query texts that are citation contexts, and rows of their citing papers, -1 if the corpus lacks them,
``contexts.arrow`` of a corpus."""

JUDGEMENTS = schema_of(query=pa.uint32(), row=pa.uint32(), grade=pa.int16())
"""Relevance judgements of a corpus (``judgements.arrow``) and of a pool (``qrels.arrow``), sorted by query, then row;
``query`` is the position in the queries table beside it."""

MISSING = schema_of(query=pa.uint32(), grade=pa.int16())
"""Judgements of grade 1 or more whose papers the corpus lacks, ``missing.arrow`` of a corpus and of a pool with query
texts, sorted by query, then grade."""

POOL_QUERIES = schema_of(row=pa.uint32(), field=pa.string(), nullable="field")
"""Queries of a pool, ``queries.arrow``: rising rows of the corpus's papers, or of its query texts if the manifest's
config has ``queries_are = "texts"``."""

CANDIDATES = schema_of(row=pa.uint32())
"""Candidates of a pool, rising rows, ``candidates.arrow``."""

EXCLUSIONS = schema_of(query=pa.uint32(), row=pa.uint32())
"""Candidates that are removed from the rankings of queries before ranks are counted: the query itself and, by setting,
papers with its title. ``exclusions.arrow`` of a pool, and of a corpus whose release has exclusions; sorted by query,
then row."""

RANKING = schema_of(query=pa.uint32(), row=pa.uint32(), score=pa.float32(), rank=pa.uint16())
"""A ranking, ``ranking.arrow``: entries in final order (query, then rank from 1). ``query`` is the position in the
pool's queries table. Higher scores are better; squared L2 distances are negated."""

TRIPLETS = schema_of(
    query=pa.uint32(),
    positive=pa.uint32(),
    negative=pa.uint32(),
    kind=pa.dictionary(pa.int8(), pa.string()),
    nullable="negative",
)
"""Training triplets, ``triplets-00000.arrow``: rows of the corpus, by query, and the kind of negative
(:data:`pipeline.train.draws.KINDS`); a pair has no negative."""

TUNING = schema_of(k1=pa.float64(), b=pa.float64(), map=pa.float64())
"""A tuning, ``grid.arrow``: mean average precision, a fraction, of BM25 at each point, sorted by k1, then b."""

SCORES = schema_of(
    system=pa.string(), pool=pa.string(), sample=pa.int16(), query=pa.uint32(), measure=pa.string(), value=pa.float64()
)
"""Scores, ``scores.arrow``: one row for each (system, pool, sample, query, measure), values are fractions."""

JUDGED_PAIRS = schema_of(
    query=pa.uint32(), row=pa.uint32(), query_id=pa.large_string(), paper_id=pa.large_string(), cited=pa.bool_(),
    band=pa.uint8(), system=pa.uint16(), probability=pa.float64(), drawn=pa.bool_(),
)  # fmt: skip
"""Pairs that could be judged, ``pairs.arrow`` of a draw, sorted by query, then row: their stratum
(:func:`pipeline.measure.judged.stratify`), the probability that people judge them, and whether they do."""

LABELS = schema_of(query=pa.uint32(), row=pa.uint32(), annotator=pa.string(), machine=pa.bool_(), grade=pa.int16())
"""Labels of pairs, ``labels.arrow``, sorted by query, row, annotator; ``machine``: by a model."""


def vectors(dimension: int, storage: str) -> pa.Schema:
    """Return the schema of a vector shard: ``row``, rising, repeated for several vectors per paper, and ``vector``."""
    value = {"float32": pa.float32(), "float16": pa.float16()}[storage]
    vector = pa.list_(pa.field("item", value, nullable=False), dimension)
    return schema_of(row=pa.uint32(), vector=vector)
