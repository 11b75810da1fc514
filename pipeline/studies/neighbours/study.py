"""The study ``neighbours``: its tables, and plots of titles and papers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from pipeline.studies import kit
from pipeline.studies.neighbours.corpus import (
    OUTCOMES,
    TITLE,
    Members,
    NeighboursConfig,
    PoolKind,
    neighbours_task,
    pool_task,
)
from pipeline.studies.neighbours.geometry import DESCRIBED, overlap, similarity_task, standardised_task, unit_vectors
from pipeline.studies.neighbours.operators import CATEGORIES, CLASSES, ORDERED

DEPTHS: dict[PoolKind, int] = {"titles": 100, "titles-among-titles": 100, "neighbours": 10, "overlap": 30}
"""Depth of the rankings of each kind of pool; T100, NN10_Ret and AOP-20 need no more."""

STANDARDISED = " standardised"
"""Suffix of the name of a system whose vectors are standardised."""

TASKS = {"titles": "I", "titles-among-titles": "II"}
"""Names of the tasks by kind of pool."""

OPTIMAL = {"LL-HS": (75, 100), "LO-HS": (70, 100), "LL-PS": (50, 70), "LO-PS": (50, 70), "LO-DS": (0, 20)}
"""Open interval of AOP-20, in percent, that the paper calls optimal for a category (section 6.3, table 5)."""

_TITLE_COLUMNS = tuple(itertools.product(TASKS.values(), ("MRR", "T100")))
"""Tasks and measures of table 3."""

_TITLES = {"mrr": "MRR", "recall@100": "T100"}
_NEIGHBOURS = {"precision@1": "NN1_Ret", "recall@10": "NN10_Ret", "mrr": "MRR"}
_CATEGORY = pl.col("name").replace_strict({name: row.category for name, row in CLASSES.items()}, default="")
_BRACKETS = "[95% interval over papers]"
_BY_CLASS = pl.col("name").cast(pl.Enum(ORDERED))
_FACTS = ["corpus", "system", "task", "category", "name", "measure"]


_PLOTTED = 500
"""Number of papers of a t-SNE plot."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the study."""

    corpus: str = kit.required("names of corpora, with commas")
    input: str = kit.required("folder with NAME.jsonl.gz of each (id, title, abstract); empty: they are built already")
    systems: str = kit.required("what ranks, with commas; encoders must compare vectors by cosine")
    titles: int = kit.required("papers whose titles are queries, tasks I and II (section 5)")
    papers: str = kit.required("papers whose neighbours are queries, in each class, or all (section 6.3)")
    candidates: Literal["all", "sampled"] = kit.required(
        "of overlaps: neighbours of every paper, or of those papers alone"
    )
    classes: tuple[str, ...] = kit.required("classes of neighbours; empty: all 32")
    standardise: bool = kit.required("repeat tasks I and II with standardised vectors (appendix D.1)")
    seed: int = kit.required("seed of every draw")

    def __post_init__(self) -> None:
        for name in self.classes:
            kit.require_known(name, CLASSES, f"a class must be one of the 32, got {name!r}")
        if self.titles < 1:
            raise kit.InputError(f"titles must be a number from 1, got {self.titles!r}", "The paper takes 1000")

    @property
    def corpora(self) -> list[str]:
        """Names of the sets, which the recipe separates by commas."""
        return [name.strip() for name in self.corpus.split(",") if name.strip()]

    @property
    def settings(self) -> NeighboursConfig:
        """Settings of the corpora of neighbours."""
        queries = self.queries  # always read, so that it is checked before anything is made
        papers = "all" if self.candidates == "all" else queries
        return NeighboursConfig(papers, self.classes or tuple(CLASSES), self.seed)

    @property
    def queries(self) -> kit.Count:
        """Number of neighbours of each class that are queries."""
        queries: kit.Count = kit.convert(self.papers, kit.Count, "papers")
        return queries

    @property
    def limitations(self) -> list[str]:
        """Note for the tables of overlaps, if their candidates differ from those of the paper."""
        if self.candidates == "all" or self.queries == "all":
            return []
        return [
            f"Limitation (candidates=sampled): candidates are the originals and the neighbours of {self.papers} papers "
            "alone. With those of all papers, as in section 6.3, overlaps are lower."
        ]

    def check(self) -> None:
        """Check systems before anything is made."""
        for model in kit.encoders(kit.parse_systems(self.systems)):
            if model.multi_vector:
                raise kit.InputError(f"{model.name} must have one vector per paper", "Leave it out of --model")
            if model.distance != "cosine":
                problem = f"{model.name} must be compared by cosine, got {model.distance}"
                raise kit.InputError(problem, f"{model.name}:distance=cosine")

    def release(self, name: str) -> kit.Task:
        """Return the task that makes a corpus of the input."""
        file = Path(self.input).expanduser() / f"{name}.jsonl.gz"
        if not file.is_file():
            raise kit.InputError(f"{file} must be a file with the papers of {name}", "Check --input and --corpus")
        return kit.corpus_task(name, kit.JsonLines(file, columns="paper_id=id"))


class RankedPool(NamedTuple):
    """A system on a pool: its ranking and its scores (overlaps have none).

    An encoder, unless its vectors are standardised, has the task that embeds the papers of the pool, and its model.
    """

    kind: PoolKind
    pool: kit.Task
    system: str
    ranking: kit.Task
    scores: Sequence[kit.Task]
    encoder: tuple[kit.Task, kit.Model] | None = None


def ranked_pools(workspace: kit.Workspace, recipe: Recipe, corpus: kit.Artifact) -> list[RankedPool]:
    """Return the ranking of every system on every pool of one corpus of neighbours; overlaps are not scored."""
    rankings, counts = list[RankedPool](), corpus.manifest.counts["neighbours"]
    systems, with_neighbours = kit.parse_systems(recipe.systems), [name for name in counts if counts[name]]
    for kind, depth in DEPTHS.items():
        of_titles = kind.startswith("titles")
        queries = recipe.titles if of_titles else recipe.queries
        for name in with_neighbours if kind == "overlap" else [""]:
            pool = pool_task(corpus, kind, queries, recipe.seed, name)
            evaluations = workspace.evaluations(pool, recipe.systems, depth=depth)
            for system, evaluation in zip(systems, evaluations, strict=True):
                scores, model = () if kind == "overlap" else evaluation.scores, system.ranker
                encoder = (evaluation.embed[0], model) if isinstance(model, kit.Model) else None
                rankings.append(RankedPool(kind, pool, system.name, evaluation.ranking, scores, encoder))
                if recipe.standardise and of_titles and encoder:
                    vectors, own_name = standardised_task(corpus, pool, *encoder), system.name + STANDARDISED
                    ranking = kit.dense_ranking_task(corpus, pool, {"paper": vectors}, encoder[1], depth=depth)
                    scores = kit.score_tasks(ranking, pool, corpus, system=own_name, depth=depth)
                    rankings.append(RankedPool(kind, pool, own_name, ranking, scores))
    return rankings


@kit.study(
    "neighbours",
    "title queries and 32 classes of textual neighbours",
    Recipe,
    needs="Its recipe is for the corpus of mdcr demo; give another of English abstracts with --corpus, or for the "
    "paper's sets --recipe=neighbours_paper and a folder of NAME.jsonl.gz (id, title, abstract) with --input",
)
def neighbours(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Rank titles and neighbours, corpus by corpus, and show how stable rankings are."""
    recipe.check()
    corpora, all_values, cosines = dict[str, kit.Artifact](), list[pl.DataFrame](), list[pl.DataFrame]()
    category_frames, plots = list[pl.DataFrame](), dict[str, kit.Drawing]()
    for position, name in enumerate(recipe.corpora):
        base = workspace.corpus(name).artifact if not recipe.input else (yield [recipe.release(name)])[0]
        made = yield [neighbours_task(base, recipe.settings)]
        corpus = corpora[name] = made[0]
        rankings = ranked_pools(workspace, recipe, corpus)
        yield [score for ranked_pool in rankings for score in ranked_pool.scores]
        yield [ranked_pool.ranking for ranked_pool in rankings if not ranked_pool.scores]
        encoded = [ranked for ranked in rankings if ranked.kind == "neighbours" and ranked.encoder]
        made = yield [similarity_task(corpus, of.pool, *of.encoder) for of in encoded if of.encoder]
        for ranked, artifact in zip(encoded, made, strict=True):
            of_classes = pl.DataFrame(artifact.arrow("similarities.arrow")).sort(_BY_CLASS)
            facts = {"corpus": pl.lit(name), "system": pl.lit(ranked.system), "category": _CATEGORY}
            cosines.append(of_classes.select(**facts, **{column: column for column in of_classes.columns}))
        values = pl.concat(values_of(workspace, corpus, ranked_pool) for ranked_pool in rankings)
        all_values.append(values.with_columns(corpus=pl.lit(name)))
        of_neighbours = all_values[-1].filter(pl.col("category") != "")
        plots |= title_plots(workspace, name, corpus, rankings, recipe.seed)
        category_frames.append(category_means(of_neighbours, recipe.seed + position))
    all_means = means_of(pl.concat(all_values), recipe.seed)
    title_means = all_means.filter(pl.col("category") == "")
    classes = all_means.drop("draws").filter(pl.col("category") != "", pl.col("measure") != "MRR")
    tables = [
        titles(with_means(title_means)), *categories(with_means(pl.concat(category_frames)), recipe),
        by_class(classes, recipe), counts(corpora),
    ]  # fmt: skip
    if any(map(len, cosines)):
        tables.append(similarities(pl.concat(cosines)))
    return kit.Report(tables, figures=plots, sources=[corpus.name for corpus in corpora.values()])


def values_of(workspace: kit.Workspace, corpus: kit.Artifact, ranked: RankedPool) -> pl.DataFrame:
    """Return the values of one system on one pool, fractions.

    Columns: ``system``, ``task``, ``category`` (empty for titles), ``name`` (the class), ``original`` (its row),
    ``measure``, ``value``.
    """
    pool = kit.Pool(workspace.make([ranked.pool])[0], kit.Corpus(corpus))
    if ranked.kind == "overlap":
        (ranking,) = workspace.make([ranked.ranking])
        shares = {f"AOP-{depth}": overlap(ranking, pool, depth) for depth in (10, 20)}
        values = pl.concat(
            pl.DataFrame({"original": rows, "value": values}).with_columns(measure=pl.lit(name))
            for name, (rows, values) in shares.items()
        ).with_columns(name=pl.lit(ranked.pool.config.name))
    else:
        names = _NEIGHBOURS if ranked.kind == "neighbours" else _TITLES
        classes = pool.artifact.arrow("queries.arrow")["field"].to_pylist()
        queries = pl.DataFrame({"original": pool.qrels["row"].to_numpy(), "name": classes}).with_row_index("query")
        scores = pl.from_arrow(workspace.make(ranked.scores[:1])[0].arrow("scores.arrow"))
        scores = scores.filter(pl.col("measure").is_in(list(names))).join(queries, on="query", maintain_order="left")
        values = scores.with_columns(pl.col("original").cast(pl.Int64), pl.col("measure").replace(names))
    task = TASKS.get(ranked.kind, ranked.kind)
    facts = {"system": pl.lit(ranked.system), "task": pl.lit(task), "category": _CATEGORY}
    return values.select(**facts, **{name: name for name in ("name", "original", "measure", "value")})


def means_of(values: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Return the means of :func:`values_of` in percent, with the corpus.

    Added columns: ``queries``, the 95% interval ``low`` and ``high``, and its ``draws``.
    """
    percent = values.with_columns(pl.col("value") * 100)
    means = kit.estimate(percent, kit.Design(row=(), of=_FACTS, item="original", group="corpus"), seed, keep_draws=True)
    first = pl.int_range(pl.len()).min().over("corpus", "system", "task")
    return means.select(*_FACTS, "value", "low", "high", "draws", queries="items").sort(first, maintain_order=True)


def category_means(values: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Return the mean over the classes of each category of :func:`values_of` in percent, resampled by paper.

    Columns: ``corpus``, ``system``, ``category``, ``measure``, ``value``, ``low``, ``high``, ``draws``.
    """
    systems = pl.Enum(values["system"].unique(maintain_order=True))
    percent = values.with_columns(pl.col("value") * 100).sort(pl.col("system").cast(systems), maintain_order=True)
    keys = ["corpus", "system", "category", "measure"]
    design = kit.Design(row=(), of=keys, item="original", group="name", unit="original")
    return kit.estimate(percent, design, seed, keep_draws=True).select(*keys, "value", "low", "high", "draws")


def with_means(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the means over the corpora, if there are several, with intervals from their independent resamples."""
    figures = frame.drop("draws")
    if frame["corpus"].n_unique() == 1:
        return figures
    keys = frame.drop("corpus", "queries", "value", "low", "high", "draws", strict=False).columns
    means = kit.estimate(frame, kit.Design(row=(), of=keys, item="corpus", resampled="draws"), seed=0)
    means = means.with_columns(corpus=pl.lit("mean over sets")).drop("items", "units", "interval")
    return pl.concat([figures, means], how="diagonal")


def titles(values: pl.DataFrame) -> kit.Table:
    """Return table 3: a row for each corpus and system."""
    columns = [f"{task} {name}" for task, name in _TITLE_COLUMNS]
    note = f"MRR and T100 in percent. {_BRACKETS}"
    return _table("titles", "Titles as queries", values, pl.format("{} {}", "task", "measure"), columns, [note])


def categories(means: pl.DataFrame, recipe: Recipe) -> Iterator[kit.Table]:
    """Yield tables 4 and 5: AOP-10 and AOP-20 by category (:func:`category_means`), marked if :data:`OPTIMAL`."""
    note = "A vector is not its own neighbour, so AOP-10 is at most 90% where a neighbour and its original are closest."
    of_ten, notes = means.filter(measure="AOP-10"), [f"{note} {_BRACKETS}", *recipe.limitations]
    yield _table("categories", "AOP-10 by category", of_ten, pl.col("category"), CATEGORIES, notes)
    lows, highs = ({name: ends[end] for name, ends in OPTIMAL.items()} for end in (0, 1))
    low, high = (pl.col("category").replace_strict(ends) for ends in (lows, highs))
    means = means.filter(measure="AOP-20")
    means = means.with_columns(optimal=pl.col("value").is_between(low, high, closed="none"))
    ranges = ", ".join(f"{category} {low} to {high}" for category, (low, high) in OPTIMAL.items())
    notes = [f"* optimal: {ranges}. {_BRACKETS}", *recipe.limitations]
    marks = pl.when("optimal").then(pl.lit("*")).otherwise(pl.lit(""))
    yield _table("optimality", "AOP-20 by category", means, pl.col("category"), CATEGORIES, notes, marks)


def by_class(classes: pl.DataFrame, recipe: Recipe) -> kit.Table:
    """Return the mean over the corpora of each class, system and measure."""
    keys = ["category", "name", "system", "measure"]
    means = classes.group_by(keys, maintain_order=True).agg(pl.col("value").mean()).sort(_BY_CLASS, maintain_order=True)
    title, notes = "Neighbours as queries, and overlap, by class", ["Means over the corpora, in percent."]
    return kit.table(
        "classes", title, classes, "class: {category} {name}", "{value:.1f}", [*notes, *recipe.limitations], rows=means,
        across="{system} {measure}",
    )  # fmt: skip


def counts(corpora: Mapping[str, kit.Artifact]) -> kit.Table:
    """Return the number of neighbours of each class."""
    frame = pl.concat(
        pl.DataFrame({
            "corpus": corpus, "class": list(artifact.manifest.counts["neighbours"]),
            **{outcome: list(artifact.manifest.counts[outcome].values()) for outcome in OUTCOMES},
        })
        for corpus, artifact in corpora.items()
    )  # fmt: skip
    totals = frame.group_by("class", maintain_order=True).agg(pl.col(OUTCOMES).sum())
    note = (
        "Papers that a class leaves unchanged, or without a word, have no neighbour of it. Papers whose abstract is "
        "not English have no neighbours."
    )
    columns = {outcome.replace("_", " "): f"{{{outcome}:,}}" for outcome in OUTCOMES}
    return kit.table("counts", "Neighbours by class", frame, "{class}", columns, [note], rows=totals)


def similarities(cosines: pl.DataFrame) -> kit.Table:
    """Return the similarities by category: means over classes and corpora, lowest and highest over all."""
    extremes = {"lowest": pl.col("lowest").min(), "highest": pl.col("highest").max()}
    means = cosines.group_by("system", "category", maintain_order=True).agg(
        **{name: extremes.get(name, pl.col(name).mean()) for name in DESCRIBED}
    )
    notes = ["Cosines of all pairs of neighbours of a class, and of neighbours with their originals."]
    columns = {name: f"{{{name}:.3f}}" for name in DESCRIBED}
    label = "system: {system} {category}"
    return kit.table("similarities", "Similarities by category", cosines, label, columns, notes, rows=means)


def _table(
    name: str, title: str, frame: pl.DataFrame, column: pl.Expr, columns: Sequence[str], notes: Sequence[str],
    marks: pl.Expr | None = None,
) -> kit.Table:  # fmt: skip
    """Return figures (``corpus``, ``system``, ``value`` and its interval) as a table, corpus by corpus.

    ``column`` is what each stands below, one of ``columns``; ``marks`` follow a value.
    """
    marked = frame.with_columns(column=column, marks=pl.lit("") if marks is None else marks)
    shown = marked.drop_nulls("value").filter(pl.col("column").is_in(columns))
    corpora, order = (pl.Enum(names) for names in (shown["corpus"].unique(maintain_order=True), columns))
    shown = shown.with_columns(system=pl.format("{} {}", "corpus", "system"))
    systems = pl.Enum(shown.sort(pl.col("corpus").cast(corpora))["system"].unique(maintain_order=True))
    shown = shown.sort(pl.col("system").cast(systems), pl.col("column").cast(order))
    write = kit.figure(scale=1)
    across = {"rows": shown, "across": "{column}"}
    return kit.table(name, title, frame, ": {system}", lambda row: str(write(row)), notes, **across)


def title_plots(
    workspace: kit.Workspace, name: str, corpus: kit.Artifact, rankings: Sequence[RankedPool], seed: int
) -> dict[str, kit.Drawing]:
    """Return a t-SNE plot of titles and papers for each encoder on one corpus (figures 2 and 8)."""
    members = Members.read(corpus)
    plotted = kit.generator(seed, "t-sne").permutation(np.flatnonzero(members.names == TITLE))[:_PLOTTED]
    rows = np.union1d(members.rows[plotted], members.original_of[plotted])
    is_title = np.isin(rows, members.rows[plotted])
    plots = dict[str, kit.Drawing]()
    for ranked_pool in rankings:
        if ranked_pool.kind == "titles-among-titles" and ranked_pool.encoder:
            task, model = ranked_pool.encoder
            vectors = unit_vectors(kit.store_of(*workspace.make([task])), rows)
            title = f"{ranked_pool.system}, {name}"
            draw = partial(_draw_titles, vectors=vectors, is_title=is_title, title=title, seed=seed)
            plots[f"titles-{kit.file_name(name)}-{model.slug}"] = draw
    return plots


def _draw_titles(figure_class: Any, vectors: Any, is_title: Any, title: str, seed: int) -> Any:
    from sklearn.manifold import TSNE

    embedding = TSNE(perplexity=min(30, len(vectors) / 3), init="pca", metric="cosine", random_state=seed)
    points = embedding.fit_transform(vectors)
    figure = figure_class(figsize=(3.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for label, is_shown, colour in (("T+A", ~is_title, kit.COLOURS[0]), ("T", is_title, kit.COLOURS[1])):
        axes.scatter(*points[is_shown].T, s=2, lw=0, color=colour, label=label)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, fontsize=8)
    axes.legend(fontsize=6, markerscale=3)
    return figure
