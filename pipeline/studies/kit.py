"""The study kit, ``mdcr.study``: everything that a study imports.

A study is a generator. It yields lists of tasks, gets their artifacts, and returns a :class:`Report`::

    @study("by_year", "MAP by year of the queries", Recipe)
    def STUDY(workspace, recipe):
        found = yield from scored(workspace, recipe, [selection(**pools_of(recipe))])
        frame = found.values.filter(measure="map").group_by("label", "year").agg(pl.mean("value"))
        return Report([table("by-year", "MAP by year", frame, "{label}, {year}", {"MAP": figure()})])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pipeline.api import Workspace, selection
from pipeline.core.artifact import Artifact, published, readable
from pipeline.core.config import OMIT_DEFAULT, counted, digest, file_name, format_count, from_mapping
from pipeline.core.csr import pack
from pipeline.core.errors import CorruptError, InputError, InsufficientDataError, nearest, require_known
from pipeline.core.fields import FIELD_BIT, MAG_FIELDS
from pipeline.core.files import given_json, given_toml, read_arrow, resolved, sha256
from pipeline.core.install import pip_extra
from pipeline.core.manifest import Counts
from pipeline.core.order import best
from pipeline.core.parallel import unordered
from pipeline.core.progress import Progress, say
from pipeline.core.resources import Resources
from pipeline.core.rng import generator, priorities, smallest
from pipeline.core.schema import MISSING, NO_YEAR
from pipeline.core.settings import Count, convert, required
from pipeline.core.task import Inputs, Task
from pipeline.core.text import doi_key, id_keys, normalise, number, title_keys
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import CORPORA, RANKINGS, corpus_folders, find_corpus
from pipeline.corpus.authors import CLASSES, Authors
from pipeline.corpus.build import build_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import SETTINGS, PoolConfig
from pipeline.corpus.pools import drawable, write_pool
from pipeline.corpus.prefilter import PrefilterConfig, describe_gaps, has_text, prefilter
from pipeline.corpus.queries import choose_queries
from pipeline.corpus.reader import Corpus, Graph, Text
from pipeline.data import DATA
from pipeline.encode.aspire import split_sentences
from pipeline.encode.base import Matrix
from pipeline.encode.kinds import KINDS
from pipeline.encode.known import known_models
from pipeline.encode.known import published as published_of
from pipeline.encode.model import FIELD_MARK, Model, Role
from pipeline.encode.names import parse, parse_one, split_names
from pipeline.encode.parameters import own_parameters, parameters
from pipeline.encode.registry import for_task, resolve
from pipeline.encode.store import VectorStore, write_rows, write_shard
from pipeline.exchange.boards import MAIN, kinds_of, units
from pipeline.exchange.cells import FRACTION, PERCENT, POINTS
from pipeline.exchange.export import as_csv
from pipeline.exchange.names import in_our_spelling, is_called, sign_of_name
from pipeline.exchange.results import Found, read_results
from pipeline.measure.board import ALPHA, Board, board, check_distinct, plan, shared
from pipeline.measure.design import Design, Draws, corrected, estimate
from pipeline.measure.engines import by_chance, evaluate_all
from pipeline.measure.estimates import POWER, contrasts, crossed_mean, tall
from pipeline.measure.inputs import Mask, Qrels, RankedRun, positions_in, query_of
from pipeline.measure.measures import parse_measures, sign_of
from pipeline.measure.ranks import all_pairs, coverage_blocks, letters, ranks_with_ends, standings
from pipeline.measure.resampling import bootstrap
from pipeline.measure.statistics import Floats, bootstrap_means
from pipeline.retrieve.base import MAX_DEPTH, Ranking
from pipeline.retrieve.canonical import best_pair_score
from pipeline.scores.average import AVERAGE, PROTOCOL
from pipeline.scores.caption import collection, unusual
from pipeline.scores.choose import labels_of, option
from pipeline.scores.facts import artifact_of, gaps_of, setting_of
from pipeline.scores.files import evaluate
from pipeline.scores.layout import select_measures
from pipeline.scores.page.browse import browser
from pipeline.scores.page.parts import Browser, Chart, Series
from pipeline.scores.plot import COLOURS
from pipeline.scores.published import published as published_figure
from pipeline.scores.published import with_published
from pipeline.scores.render import render_table
from pipeline.scores.sources import (
    INDEX,
    RERANKER,
    UNKNOWN,
    Source,
    Sources,
    as_training,
    cited_until,
    cut_note,
    trainings_in,
)
from pipeline.scores.store import Rankings, open_rankings, runs_of, values
from pipeline.scores.summary import flat, summarise
from pipeline.scores.tables import Table, label_of
from pipeline.sources import csfcube
from pipeline.sources.base import RAW_PAPERS, PaperBatch, QuerySet, Release, find_files, fingerprint
from pipeline.sources.collection import JsonLines
from pipeline.sources.papers import Paper, paper_batches
from pipeline.sources.records import StrictTally, Tally, numbered, open_parquet, read_columns, read_records
from pipeline.stages.chain import Evaluation
from pipeline.stages.corpus import authors_task, corpus_task
from pipeline.stages.dense import dense_ranking_task
from pipeline.stages.embed import embed_tasks, store_of
from pipeline.stages.pool import read_ids
from pipeline.stages.ranking_file import RECORDED, read_ranking, write_ranking
from pipeline.stages.score import score_task, score_tasks
from pipeline.stages.selection import Selection
from pipeline.stages.systems import (
    TUNED,
    UNTUNED,
    Bm25,
    System,
    encoders,
    fused_names,
    parse_systems,
    spelled,
    stored_names,
    stored_system,
)
from pipeline.stages.tune import Tuning, tune_task
from pipeline.studies.base import Drawing, Report, Steps, Study
from pipeline.studies.pools import Draw, own_pool, with_negatives
from pipeline.studies.recipe import PoolsRecipe, pools_of, read_recipe
from pipeline.studies.scored import (
    LISTS,
    Batches,
    Scored,
    check_baseline,
    corpus_of,
    named_by,
    pool_tasks,
    report_of,
    scored,
    stored_runs,
    tuned,
)
from pipeline.studies.tables import Columns, Row, Show, figure, points, table


def tfidf_similarities(queries: Iterable[Text], papers: Iterable[Text]) -> Any:
    """Return :func:`pipeline.encode.lsa.tfidf_similarities`, which brings scikit-learn."""
    from pipeline.encode.lsa import tfidf_similarities as similarities

    return similarities(queries, papers)


def study(
    name: str, summary: str, recipe: type[Any], *, own_recipe: Path | None = None, **further: Any
) -> Callable[[Callable[[Workspace, Any], Steps]], Study]:
    """Make a study of a generator ``steps(workspace, recipe)``; the other arguments are those of :class:`Study`."""
    return lambda steps: Study(name, summary, recipe, steps, own_recipe=own_recipe, **further)
