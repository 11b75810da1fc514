"""Analyses of the largest pools: metadata gaps of positives and negatives, gains by query, and training leakage."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core.rng import priorities
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.prefilter import MARKS, PrefilterConfig, has_text
from pipeline.corpus.reader import Corpus
from pipeline.measure.engines import precision_among
from pipeline.measure.estimates import FEWEST_PAIRS, rank_correlation, share_between, share_of_clusters
from pipeline.measure.inputs import Mask, query_of
from pipeline.measure.statistics import Floats, interval, simultaneous
from pipeline.scores.tables import Form, Table, Value, cell, grid
from pipeline.studies.common import BRACKETS, share
from pipeline.studies.large_scale.rankings import POOLS_NOTE, PoolRankings, scopes, systems_of

_YEARS = 3  # years per stratum
STRATUM = ["text", "years", "length"]
MATCHED_DRAWS = 40  # draws of matched and of random negatives, which are averaged

Precisions = Mapping[str, Mapping[tuple[str, str], Floats]]
"""Average precision by group, kind of candidates and system: float64 ``[draws, queries]``, NaN without positives.

Kinds that are not random have one draw.
"""


def precisions(rankings: Sequence[PoolRankings], seed: int) -> Precisions:
    """Return average precision by kind of candidates (:func:`candidate_kinds`).

    Rankings are restricted to the candidates of a kind, which makes them shorter.
    """
    values = {}
    for pool in rankings:
        draws = defaultdict(list)
        for kind, mask in candidate_kinds(pool, seed):
            for system, run in pool.runs.items():
                draws[kind, system].append(precision_among(pool.qrels, run, mask))
        values[pool.group] = {key: np.stack(precision_draws) for key, precision_draws in draws.items()}
    return values


def candidate_kinds(rankings: PoolRankings, seed: int) -> Iterator[tuple[str, Mask]]:
    """Yield which papers are candidates of each kind, bool ``[papers of the corpus]``.

    The kinds are all candidates and candidates with text. Then, for each draw: positives with one negative each of the
    same stratum, and the same positives with as many negatives drawn from the whole pool.
    """
    corpus, rows = rankings.pool.corpus, rankings.pool.candidates
    keys, with_text = corpus.attributes["key"][rows], has_text(corpus.attributes, PrefilterConfig())
    yield "all", np.ones(len(corpus), bool)
    yield "with text", with_text
    positive = np.isin(rows, rankings.qrels.rows)
    strata = with_strata(corpus, rows, with_text[rows]).with_columns(positive=positive)
    for draw in range(MATCHED_DRAWS):
        chances = {kind: priorities(keys, seed, "matched", f"{kind} {draw}") for kind in ("stratum", "pool")}
        papers = strata.with_columns(**chances).sort("stratum", "row")
        papers = papers.with_columns(pl.int_range(pl.len()).over(*STRATUM, "positive").alias("nth"))
        matched = papers.filter(pl.len().over(*STRATUM, "nth") == 2)
        random_negatives = papers.filter(positive=False).sort("pool", "row").head(len(matched) // 2)
        random = pl.concat([matched.filter("positive"), random_negatives])
        for kind, papers_of_kind in (("matched negatives", matched), ("random negatives", random)):
            mask = np.zeros(len(corpus), bool)
            mask[papers_of_kind["row"].to_numpy()] = True
            yield kind, mask


def with_strata(corpus: Corpus, papers: npt.NDArray[np.integer], text: Mask) -> pl.DataFrame:
    """Return the ``row`` of papers with their :data:`STRATUM`; ``text`` is bool ``[papers]``.

    The papers of a stratum agree in having a text, are of the same :data:`_YEARS` years, and differ in length by a
    factor of at most 1.4.
    """
    years, length = corpus.attributes["year"][papers] // _YEARS, np.maximum(corpus.characters(papers), 1)
    return pl.DataFrame({"row": papers, "text": text, "years": years, "length": np.floor(2 * np.log2(length))})


def shares(rankings: Sequence[PoolRankings]) -> Table:
    """Return the shares of positives and negatives that lack an abstract, a year or references."""
    counts_of = ((pool.group, kind, counts) for pool in rankings for kind, counts in pool.gaps.items())
    cells = {
        (f"{group} {kind} ({counts['papers']:,})", mark.replace("_", " ")): cell(*share(counts[mark], counts["papers"]))
        for group, kind, counts in counts_of
        for mark in MARKS
    }
    note = "Papers count once, however many cite them."
    return grid("giveaways", "What gives a positive away", "candidates", cells, [note, BRACKETS])


def without_giveaways(
    rankings: Sequence[PoolRankings], precision: Precisions, baseline: str, seed: int
) -> Iterator[Table]:
    """Yield tables of MAP by kind of candidates (:func:`candidate_kinds`), and of gains over the baseline."""
    cells, gains = dict[tuple[str, str], Value](), dict[tuple[str, str], Value]()
    for scope, pools in scopes(rankings).items():
        systems = systems_of(pools)
        values = {
            (kind, system): np.concatenate([precision[pool.group][kind, system] for pool in pools], axis=1)
            for kind, system in precision[pools[0].group]
            if system in systems
        }
        for system in systems:
            cost = values["matched negatives", system] - values["random negatives", system]
            gains[f"{scope}: matched less random", system] = cell(*interval(cost, seed, scope))
        for (kind, system), kind_values in values.items():
            cells[f"{scope}: {kind}", system] = cell(*interval(kind_values, seed, scope))
            if system != baseline and baseline in systems:
                gain = kind_values - values[kind, baseline]
                gains[f"{scope}: gain, {kind}", system] = cell(*interval(gain, seed, scope))
    notes = (
        "With text: papers without title or abstract are removed. Matched negatives: each positive has one negative "
        f"with or without an abstract as itself, of the same {_YEARS} years and like length; positives without one are "
        "removed. Random negatives: the same positives and as many negatives drawn at random. Both are means over "
        f"{MATCHED_DRAWS} draws, and their intervals are over queries and draws.",
        "Rankings are cut to these candidates, and queries without positives are left out.",
        POOLS_NOTE,
        BRACKETS,
    )
    gain_note = f"Gain: over {baseline}, query by query."
    corner = "candidates"
    yield grid("without-giveaways", "MAP without what gives a positive away", corner, cells, notes)
    title = "Gains without what gives a positive away"
    yield grid("without-giveaways-gains", title, corner, gains, [gain_note, *notes])


_WORDS = re.compile(r"\w{3,}")
_CORRELATION = Form(1, ".2f")


def winners(rankings: Sequence[PoolRankings], precision: Precisions, baseline: str) -> Iterator[Table]:
    """Yield rank correlations of each system's gain over the baseline with properties of the queries.

    Their intervals are simultaneous; correlations of fewer than ten queries are left out.
    """
    pairs: list[tuple[str, str, Floats, Floats]] = []
    shares = dict[tuple[str, str], Value]()
    for scope, pools in scopes(rankings).items():
        systems = systems_of(pools)
        if baseline not in systems:
            continue
        facts = [query_facts(pool) for pool in pools]
        for system in (system for system in systems if system != baseline):
            gains = [
                precision[pool.group]["all", system][0] - precision[pool.group]["all", baseline][0] for pool in pools
            ]
            for name in facts[0]:
                fact = _within([pool_facts[name] for pool_facts in facts])
                pairs.append((f"{scope}: {name}", system, _within(gains), fact))
            if len(pools) > 1:
                shares[f"{scope}: field (share of variance)", system] = cell(*share_between(gains), form=_CORRELATION)
    level = simultaneous(len(pairs))
    cells: dict[tuple[str, str], Value] = {
        (label, system): cell(*rank_correlation(gain, fact, level), form=_CORRELATION)
        for label, system, gain, fact in pairs
    }
    if cells:
        notes = (
            f"Spearman's correlation of the gain in average precision over {baseline} with a fact about the query. "
            "Shared words: share of the query's words that a positive has. Age: years from positive to query.",
            f"The intervals of the {len(cells)} correlations hold together with 95% (Bonferroni); one of fewer than "
            f"{FEWEST_PAIRS} queries is left out.",
            "Ranks are within each field, so differences between fields do not count. They are the last row: the share "
            "of the variance of the gain that lies between fields (Brown and Forsythe's F), system by system.",
            POOLS_NOTE,
            BRACKETS,
        )
        yield grid("winners", "What explains who wins a query", "fact", cells | shares, notes)


def query_facts(rankings: PoolRankings) -> dict[str, Floats]:
    """Return properties of the queries of a pool, float64 ``[queries]`` each.

    - length: characters of title and abstract;
    - positives: number of positives;
    - age: mean years from the positives that have a year to the query; NaN if none has;
    - shared words: share of the query's words that a positive also has, mean over positives;
    - with abstract: share of the positives that have one.
    """
    corpus, queries, qrels = rankings.pool.corpus, rankings.pool.query_rows, rankings.qrels
    query = queries[query_of(qrels.offsets)]
    years = np.where(rankings.attribute("year") == NO_YEAR, np.nan, rankings.attribute("year"))
    rows = np.union1d(qrels.rows, queries)
    texts = (words(f"{text.title} {text.abstract}") for block in corpus.texts(rows) for text in block)
    words_of = dict(zip(rows.tolist(), texts, strict=True))
    shared = [
        len(words_of[citing] & words_of[cited]) / max(len(words_of[citing]), 1)
        for citing, cited in zip(query.tolist(), qrels.rows.tolist(), strict=True)
    ]
    return {
        "length": corpus.characters(queries).astype(np.float64),
        "positives": qrels.positives().astype(np.float64),
        "age": rankings.means(corpus.attributes["year"][query] - years),
        "shared words": rankings.means(np.array(shared, np.float64)),
        "with abstract": rankings.means(rankings.attribute("abstract_chars") > 0),
    }


def words(text: str) -> frozenset[str]:
    """Return the distinct words of three letters or more, in lower case."""
    return frozenset(_WORDS.findall(text.casefold()))


def _within(groups: Sequence[Floats]) -> Floats:
    """Return the rank of each value in its group, scaled to (0, 1], so that groups are comparable; NaN stays NaN."""
    from scipy.stats import rankdata

    ranks = [rankdata(values, nan_policy="omit") / max(np.count_nonzero(~np.isnan(values)), 1) for values in groups]
    return np.concatenate(ranks)


_ALIKE = 0.8  # minimum Jaccard index of the words of two near-duplicate titles
_FIRST = 10  # ranks of each system searched for near-duplicates


def leakage(rankings: Sequence[PoolRankings], trained: Mask | None, until: int | None) -> Table:
    """Return shares of queries and positives that may leak (:func:`audit`)."""
    cells = {}
    for pool in rankings:
        queries = np.arange(len(pool.pool.query_rows))
        for finding, flags in audit(pool, trained, until).items():
            clusters = queries if finding.startswith("queries") else query_of(pool.qrels.offsets)
            cells[pool.group, finding] = cell(*share_of_clusters(flags, clusters))
    notes = [
        f"Alike: titles whose words have a Jaccard index of at least {_ALIKE}; hits: the first {_FIRST} of every "
        "system. Younger: of a later year than the query. Positives of one query are drawn as one."
    ]
    notes += ["Trained on: not audited, as the recipe names no training lists."] if trained is None else []
    if until is not None:
        notes.append(f"Up to {until}: the last year of any encoder's training data; --trained-until leaves it out.")
    return grid("leakage", "Leakage audit", "field", cells, [*notes, BRACKETS])


def audit(rankings: PoolRankings, trained: Mask | None, until: int | None = None) -> dict[str, Mask]:
    """Return which queries and positives of a pool may leak, by finding: bool ``[queries]`` or ``[positives]``.

    - trained on: in a training list; ``trained`` is bool ``[papers of the corpus]``, None without lists;
    - up to a year: ``until``, the last year of any encoder's training data; None if unknown;
    - younger: of a later year than the query;
    - alike: its title is a near-duplicate of the query's; an alike hit: such a paper in the first ranks of a system.
    """
    corpus, (queries, query_years), positives = rankings.pool.corpus, rankings.pool.query_papers, rankings.qrels.rows
    query_of_positive = query_of(rankings.qrels.offsets)
    citing, years = queries[query_of_positive], corpus.attributes["year"]
    ranked = pl.concat(
        pl.DataFrame({"query": query_of(run.offsets), "row": run.rows.astype(np.int64)}).group_by("query").head(_FIRST)
        for run in rankings.runs.values()
    ).unique()
    query, row = (ranked[name].to_numpy() for name in ("query", "row"))
    hits = query[_alike(corpus, queries[query], row)]
    in_training = {} if trained is None else {
        "queries trained on": np.append(trained, False)[queries], "positives trained on": trained[positives]
    }  # fmt: skip
    dated, cited = years[positives] != NO_YEAR, years[positives]
    seen = {"queries": query_years <= (until or 0), "positives": dated & (cited <= (until or 0))}
    by_year = {f"{subject} up to {until}": flags for subject, flags in seen.items() if until is not None}
    return {
        **in_training,
        **by_year,
        "positives younger": dated & (cited > query_years[query_of_positive]),
        "positives alike": _alike(corpus, citing, positives),
        "queries with an alike hit": np.isin(np.arange(len(queries)), hits),
    }


def _alike(corpus: Corpus, papers: npt.NDArray[np.integer], others: npt.NDArray[np.integer]) -> Mask:
    """Return which pairs of papers have near-duplicate titles, bool ``[pairs]``.

    A title without words, or the paper -1 (none), has no near-duplicate.
    """
    rows = np.union1d(papers, others)
    rows = rows[rows >= 0]
    titles = corpus.take(rows, ["title"]).column(0).to_pylist()
    words_of = {-1: frozenset[str](), **dict(zip(rows.tolist(), map(words, titles), strict=True))}
    pairs = ((words_of[paper], words_of[other]) for paper, other in zip(papers.tolist(), others.tolist(), strict=True))
    return np.array([len(title & other) >= _ALIKE * len(title | other) > 0 for title, other in pairs], bool)
