"""``mdcr export``: write pools, rankings, scores and vectors as files for other tools."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

from pipeline.api import Workspace
from pipeline.cli import options as read
from pipeline.cli.output import print_json
from pipeline.core.artifact import published
from pipeline.core.config import counted, file_name, folder_name
from pipeline.core.errors import require_known
from pipeline.core.files import disk_errors, remove_abandoned
from pipeline.core.progress import say
from pipeline.core.workspace import EXPORTS, POOLS, TUNINGS, find_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.encode.names import split_names
from pipeline.exchange import export as formats
from pipeline.exchange import standards
from pipeline.scores.frames import EXPORTED
from pipeline.stages.tune import shown_on


def export(options: argparse.Namespace) -> None:
    """Make what is missing, export it, and print the paths of the files."""
    known, write = _KINDS[options.what]
    options.format = options.format or known[0]
    require_known(options.format, known, f"--format must be one of {', '.join(known)}, got {options.format!r}")
    folder = options.output or options.root / EXPORTS
    if not options.dry_run:
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    written = list(write(options, folder))
    for path in written:
        for place in (path, *path.glob("*/")) if path.is_dir() else (path.parent,):
            remove_abandoned(place)
    if options.json and not options.dry_run:
        print_json({"exported": [str(path) for path in written]})
        return
    for path in written:
        print(path)


def _pools(options: argparse.Namespace, folder: Path) -> Iterable[Path]:
    """Write each pool into a folder of its name."""
    runner = read.repaired(options)
    corpus = find_corpus(runner.root, options.corpus)
    corpus_reader = Corpus(corpus)
    for artifact in read.make(runner, read.selection(options).pools(corpus), options):
        pool = Pool(artifact, corpus_reader)
        formats.write_pool(folder / artifact.name, pool, options.format)
        if options.format == "beir" and (count := formats.unjudged(pool)):
            say(f"{artifact.name}: {counted(count, 'query')} without judgement, which BEIR readers do not take")
        yield folder / artifact.name


def _runs(options: argparse.Namespace, folder: Path) -> Iterable[Path]:
    """Write each ranking as a file of the name of its system in tables, of its pool and of its identity."""
    runner = read.repaired(options)
    evaluations = read.evaluations(options, runner)
    system_of = {evaluation.ranking.id: evaluation.system for evaluation in evaluations}
    tasks = [evaluation.ranking for evaluation in evaluations]
    made = read.make(runner, tasks, options, stores=True)  # pools too
    corpus = Corpus(find_corpus(runner.root, options.corpus))
    pool_artifacts = {artifact.id: artifact for artifact in published(runner.root / POOLS)}
    tunings = list(published(runner.root / TUNINGS))
    for artifact in made:
        pool = Pool(pool_artifacts[artifact.manifest.inputs["pool"]], corpus)
        label = shown_on(pool.artifact, system_of[artifact.id], tunings)
        stem = folder_name(f"{file_name(label.casefold(), kept='._+-')}-{pool.artifact.manifest.slug}", artifact.id)
        path = folder / f"{stem}.{options.format}"
        formats.write_ranking(path, artifact.arrow("ranking.arrow"), pool, label, options.format)
        yield path


def _scores(options: argparse.Namespace, folder: Path) -> Iterable[Path]:
    """Write stored scores as one file, or one for each system; an option that is not given restricts nothing."""
    settings = {"corpus": options.corpus, "depth": options.depth, "systems": options.model}
    frame = Workspace(read.runner(options)).scores(**read.given_pools(options), **settings)
    path = folder / f"scores.{options.format}"
    if options.dry_run:
        say(f"{len(frame):,} scores would be written to {path}")
        return
    if options.format == standards.EVAL_RESULTS:
        yield from standards.write_scores(folder, frame)
        return
    formats.write_frame(path, frame.select(EXPORTED), options.format)
    yield path


def _vectors(options: argparse.Namespace, folder: Path) -> Iterable[Path]:
    """Write the vectors of each pool's papers by each encoder as a file."""
    runner = read.repaired(options)
    tasks = [task for evaluation in read.evaluations(options, runner) for task in evaluation.embed]
    read.make(runner, tasks, options, stores=True)
    if options.dry_run:
        return
    workspace = Workspace(runner)
    for task in read.selection(options).pools(find_corpus(runner.root, options.corpus)):
        pool = workspace.view(task)
        for name in split_names(options.model):
            path = folder / f"{pool.name}-{file_name(name.casefold())}.{options.format}"
            yield workspace.write_vectors(pool, name, path, precision=options.precision)


_KINDS: dict[str, tuple[tuple[str, ...], Callable[[argparse.Namespace, Path], Iterable[Path]]]] = {
    "pool": (tuple(formats.POOL_FORMATS), _pools),
    "run": (formats.RANKING_FORMATS, _runs),
    "scores": ((*formats.FRAME_FORMATS, standards.EVAL_RESULTS), _scores),
    "vectors": (("npy", "parquet"), _vectors),
}
