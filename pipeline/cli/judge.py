"""``mdcr judge``: draw pairs for annotators, read their labels, and score systems by them."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.cli import options as read
from pipeline.cli.output import print_json, print_made, print_table
from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.config import counted
from pipeline.core.errors import InputError, require_known
from pipeline.core.progress import say, warn
from pipeline.core.provenance import code_version
from pipeline.core.runner import Runner
from pipeline.core.task import Task
from pipeline.core.workspace import REPORTS, find_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.exchange.boards import JUDGED as JUDGED_METRIC
from pipeline.exchange.export import write_frame
from pipeline.measure.inputs import RankedRun
from pipeline.scores.judged import judged_frame, judged_tables, price_table, stands_on, stored_judged
from pipeline.scores.page.parts import Page
from pipeline.scores.page.write import write_page
from pipeline.scores.tables import frame_table
from pipeline.stages.judge import DrawConfig, draw_task, labels_of, labels_task, parse_grades, write_pairs
from pipeline.stages.judged import VALUES, judged_task, prices
from pipeline.stages.ranking_file import FILE
from pipeline.stages.systems import display_name
from pipeline.studies.facets.scoring import measure_agreement


def judge(options: argparse.Namespace) -> None:
    """Draw pairs, read labels, or score."""
    {"draw": _draw, "read": _read, "score": _score}[options.step](options)


def _evaluations(options: argparse.Namespace, runner: Runner) -> tuple[Artifact, Task, dict[str, Task]]:
    """Return the corpus, the selected pool, and the rankings of it by the systems, by name."""
    corpus = find_corpus(runner.root, options.corpus)
    pools = [*read.selection(options).pools(corpus)]
    if len(pools) != 1 or not options.model:
        got = f"{len(pools)} pools and --model={options.model or ''}"
        raise InputError(f"one pool and its systems must be given, got {got}", "Add --samples=1 --model=bm25,scincl")
    evaluations = read.evaluations(options, runner)
    names = [display_name(one.system, tuned=one.tuning is not None)[0] for one in evaluations]
    return corpus, pools[0], dict(zip(names, (one.ranking for one in evaluations), strict=True))


def _draw(options: argparse.Namespace) -> None:
    """Draw pairs of a pool, and write the files of annotators."""
    runner = read.repaired(options)
    corpus, pool, rankings = _evaluations(options, runner)
    grades, words = parse_grades(options.grades or "1")
    size = {"pairs": options.pairs, "queries": options.queries_judged}
    of_design = options.design, size[options.design], options.ranks
    config = DrawConfig(tuple(rankings), *of_design, grades, words, options.draw_seed)
    task = draw_task(corpus, pool, [*rankings.values()], config)
    for artifact in read.make(runner, [task], options, stores=True):
        folder = (options.output or runner.root / REPORTS) / artifact.name
        opened = Pool(runner.make(pool), Corpus(corpus))
        written = write_pairs(artifact, opened, folder, options.second)
        runs = [RankedRun.from_table(runner.make(ranking).arrow(FILE), opened) for ranking in rankings.values()]
        priced = prices(artifact, opened, runs, size)
        if print_made("draw", artifact, options, files=list(map(str, written)), prices=priced.to_dicts()):
            print_table(price_table(priced))
            print(*written, sep="\n")


def _chosen_draw(options: argparse.Namespace, root: Path, pool: str | None = None) -> Artifact:
    """Return the draw that was named, else the newest; of one pool, if its id is given."""
    draws = {d.name: d for d in stored_judged(root, "draw") if pool in (None, d.manifest.inputs["pool"])}
    if options.draw is not None:
        require_known(options.draw, draws, f"there is no draw {options.draw!r} of this pool")
        return draws[options.draw]
    if not draws:
        raise InputError("no pairs of this pool were drawn", "Run mdcr judge draw with the same options")
    newest = [*draws.values()][-1]
    _say_which("draw", newest, [*draws.values()])
    return newest


def _is_of(labels: Artifact, draw: Artifact) -> bool:
    return labels.manifest.inputs["draw"] == draw.id


def _say_which(kind: str, used: Artifact, stored: Sequence[Artifact]) -> None:
    """Say which of several draws or sets of labels count: the newest, whatever is read again."""
    if len(stored) > 1:
        older = "" if used == stored[-1] else f", not {used.name}, which was read before it"
        say(f"of {len(stored)} {kind}{'s' * (kind == 'draw')} the newest counts: {stored[-1].name}{older}")


def _read(options: argparse.Namespace) -> None:
    """Read the labels of a draw, and print their numbers and the agreement of annotators."""
    runner = read.runner(options)
    if not options.labels:
        raise InputError("--labels must be given", "Name the files that people filled in, such as --labels=people.csv")
    draw = _chosen_draw(options, runner.root)
    words = parse_grades(options.grades)[1] if options.grades else ()
    task = labels_task(draw, options.labels, options.machine, words, options.extra)
    for artifact in read.make(runner, [task], options):
        _say_which("labels", artifact, [one for one in stored_judged(runner.root, "labels") if _is_of(one, draw)])
        agreed, ignored = _agreement(labels_of(artifact)), artifact.manifest.counts["ignored"]
        if ignored:
            warn(f"{counted(ignored, 'label')} of pairs that were not drawn: ignored")
        if print_made("labels", artifact, options, draw=draw.name, agreement=agreed.to_dicts()) and len(agreed):
            notes = ["alpha: Krippendorff's, ordinal; rho: Spearman; kappa: Cohen; equal: share of equal labels."]
            print_table(frame_table("agreement", "Agreement of annotators", agreed, notes, 3))


def _agreement(labels: pl.DataFrame) -> pl.DataFrame:
    """Return the agreement of each two annotators who share pairs, models among them."""
    by_annotator = labels.partition_by("annotator", "machine", maintain_order=True)
    rows = []
    for one, other in itertools.combinations(by_annotator, 2):
        both = one.join(other, on=["query", "row"])
        if len(both):
            names = " and ".join(f"{of['annotator'][0]}{' (model)' * of['machine'][0]}" for of in (one, other))
            rows.append((names, *measure_agreement(both.select("grade", "grade_right").to_numpy().T.astype(np.int64))))
    numbers = dict.fromkeys(("rho", "alpha", "kappa", "equal"), pl.Float64)
    return pl.DataFrame(rows, {"annotators": pl.String, "pairs": pl.Int64, **numbers}, orient="row")


def _score(options: argparse.Namespace) -> None:
    """Score systems by judgements: print the tables, and write the values of queries for other tools."""
    runner = read.repaired(options)
    corpus, pool, rankings = _evaluations(options, runner)
    draw = _chosen_draw(options, runner.root, pool.id)
    labels = [one for one in stored_judged(runner.root, "labels") if _is_of(one, draw)]
    if not labels:
        raise InputError(f"no labels of {draw.name} were read", "Run mdcr judge read --labels=people.csv")
    _say_which("labels", labels[-1], labels)
    task = judged_task(corpus, pool, draw, labels[-1], rankings, options.measures)
    for artifact in read.make(runner, [task], options, stores=True):
        path = (options.output or runner.root / REPORTS) / artifact.name / "values.csv"
        values = pl.DataFrame(artifact.arrow(VALUES))
        item = pl.Series(Pool(runner.make(pool), Corpus(corpus)).query_ids()).gather(values["query"])
        metric = pl.lit(JUDGED_METRIC) + pl.col("measure")
        with files.disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_frame(path, values.select("system", item=item, metric=metric, value="value"))
        if options.json:
            print_json({"judged": judged_frame(artifact).to_dicts(), "draw": draw.name, "values": str(path)})
            continue
        tables = list(judged_tables(artifact, draw, labels[-1]))
        for table in tables:
            print_table(table)
            print()
        about = f"{', '.join(rankings)}: {stands_on(artifact)}"
        facts = {"corpus": corpus.name, "pool": pool.name, "draw": draw.name, "labels": labels[-1].name}
        page = write_page(
            Page(f"Judged relevance: {pool.slug}", about, tables, facts | {"code": code_version()}), path.parent
        )
        say(f"values of queries, which mdcr audit takes: {path}")
        print(page)
