"""``mdcr judge``: draw pairs for annotators, read their labels, and score systems by them."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.cli import options as read
from pipeline.cli.output import as_record, print_counts, print_json, print_table
from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.config import SHORT_ID
from pipeline.core.errors import InputError, nearest
from pipeline.core.progress import say
from pipeline.core.runner import Runner
from pipeline.core.workspace import CORPORA, POOLS, REPORTS, find_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.exchange.frames import write_frame
from pipeline.exchange.samples import JUDGED as JUDGED_METRIC
from pipeline.scores.judged import judged_frame, judged_tables, stored_judged
from pipeline.scores.tables import frame_table
from pipeline.stages.chain import Evaluation
from pipeline.stages.judge import DrawConfig, draw_task, write_pairs
from pipeline.stages.labels import VALUES, judged_task, labels_of, labels_task
from pipeline.studies.facets.analyses import measure_agreement


def judge(options: argparse.Namespace) -> None:
    """Draw pairs, read labels, or score."""
    {"draw": _draw, "read": _read, "score": _score}[options.step](options)


def _by_pool(options: argparse.Namespace, runner: Runner) -> list[list[Evaluation]]:
    """Return the evaluations of each selected pool."""
    if not options.model:
        raise InputError("--model must be given", "Name the systems, such as --model=bm25,scincl")
    groups = dict[str, list[Evaluation]]()
    for evaluation in read.evaluations(options, runner):
        groups.setdefault(evaluation.ranking.inputs["pool"].id, []).append(evaluation)
    return list(groups.values())


def _draw(options: argparse.Namespace) -> None:
    """Draw pairs of each pool, and write the files of annotators."""
    runner = read.repaired(options)
    corpus = find_corpus(runner.root, options.corpus)
    tasks = []
    for evaluations in _by_pool(options, runner):
        names = tuple(evaluation.system.title for evaluation in evaluations)
        config = DrawConfig(names, options.pairs, options.ranks, options.grades, options.draw_seed)
        pool = evaluations[0].ranking.inputs["pool"]
        tasks.append(draw_task(corpus, pool, [evaluation.ranking for evaluation in evaluations], config))
    for artifact in read.make(runner, tasks, options, stores=True):
        folder = (options.output or runner.root / REPORTS) / artifact.name
        written = write_pairs(artifact, _pool(runner.root, artifact), folder, options.second)
        if options.json:
            print_json({"draw": as_record(artifact), "files": [str(path) for path in written]})
            continue
        print_counts(f"draw {artifact.name}", artifact)
        for path in written:
            print(path)


def _opened(root: Path, artifact: Artifact, parent: str, name: str) -> Artifact:
    """Return an input of an artifact, which lies below a folder of the workspace."""
    identity = artifact.manifest.inputs[name]
    found = [path for path in (root / parent).glob(f"[!.]*-{identity[:SHORT_ID]}") if path.is_dir()]
    if not found:
        raise InputError(f"the {name} of {artifact.name} is gone", "Draw again, of the pool that there is now")
    return Artifact.open(found[0])


def _pool(root: Path, artifact: Artifact) -> Pool:
    """Return the pool of an artifact of judgements."""
    corpus = _opened(root, artifact, CORPORA, "corpus")
    return Pool(_opened(root, artifact, POOLS, "pool"), Corpus(corpus))


def _chosen_draw(options: argparse.Namespace, root: Path, pool: str | None = None) -> Artifact:
    """Return the draw that was named, else the newest; of one pool, if its id is given."""
    draws = [draw for draw in stored_judged(root, "draw") if pool in (None, draw.manifest.inputs["pool"])]
    if options.draw is not None:
        draws = [draw for draw in draws if draw.name == options.draw]
        if not draws:
            names = [draw.name for draw in stored_judged(root, "draw")]
            raise InputError(f"there is no draw {options.draw!r} of this pool", nearest(options.draw, names))
    if not draws:
        raise InputError("no pairs of this pool were drawn", "Run mdcr judge draw with the same options")
    return draws[-1]


def _read(options: argparse.Namespace) -> None:
    """Read the labels of a draw, and print their numbers and the agreement of annotators."""
    runner = read.runner(options)
    if not options.labels:
        raise InputError("--labels must be given", "Name the files that people filled in, such as --labels=people.csv")
    draw = _chosen_draw(options, runner.root)
    pool = _pool(runner.root, draw)
    task = labels_task(draw, pool.artifact, pool.corpus.artifact, options.labels, options.machine)
    for artifact in read.make(runner, [task], options):
        agreed = _agreement(labels_of(artifact))
        if options.json:
            print_json({"labels": as_record(artifact), "draw": draw.name, "agreement": agreed.to_dicts()})
            continue
        print_counts(f"labels {artifact.name}", artifact)
        if len(agreed):
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
    corpus, tasks = find_corpus(runner.root, options.corpus), []
    chosen = dict[str, tuple[Artifact, Artifact]]()
    for evaluations in _by_pool(options, runner):
        (pool,) = runner.make_all([evaluations[0].ranking.inputs["pool"]])
        draw = _chosen_draw(options, runner.root, pool.id)
        read_labels = [one for one in stored_judged(runner.root, "labels") if one.manifest.inputs["draw"] == draw.id]
        if not read_labels:
            raise InputError(f"no labels of {draw.name} were read", "Run mdcr judge read --labels=people.csv")
        rankings = {evaluation.system.title: evaluation.ranking for evaluation in evaluations}
        task = judged_task(corpus, pool, draw, read_labels[-1], rankings, options.measures)
        chosen[task.id], tasks = (draw, read_labels[-1]), [*tasks, task]
    for artifact in read.make(runner, tasks, options, stores=True):
        draw, labels = chosen[artifact.id]
        path = (options.output or runner.root / REPORTS) / artifact.name / "values.csv"
        with files.disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_frame(path, values_of(artifact, _pool(runner.root, artifact)))
        if options.json:
            print_json({"judged": judged_frame(artifact).to_dicts(), "draw": draw.name, "values": str(path)})
            continue
        for table in judged_tables(artifact, draw, labels):
            print_table(table)
            print()
        say(f"values of queries, which mdcr audit takes: {path}")


def values_of(judged: Artifact, pool: Pool) -> pl.DataFrame:
    """Return the values of queries as results that ``mdcr audit`` reads: ``system, item, metric, value``."""
    values = pl.DataFrame(judged.arrow(VALUES))
    item = pl.Series(pool.query_ids(), dtype=pl.String).gather(values["query"])
    return values.select("system", item=item, metric=pl.lit(JUDGED_METRIC) + pl.col("measure"), value="value")
