"""What each subcommand does: options to tasks, tasks to the runner, results to standard output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.cli import options as read
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, nearest
from pipeline.core.progress import say
from pipeline.core.task import Task
from pipeline.core.units import Slice
from pipeline.core.workspace import checked_name, find_corpus, name_corpus
from pipeline.runner import Runner, Step


def run(options: argparse.Namespace) -> None:
    """Run the command that was parsed."""
    COMMANDS[options.command](options)


def corpus(options: argparse.Namespace) -> None:
    """Build a corpus and give it its name."""
    from pipeline.corpus.duplicates import DuplicatesConfig
    from pipeline.sources.registry import open_release
    from pipeline.stages.corpus import corpus_task, without_duplicates_task

    runner = read.runner(options)
    if options.engine not in ("local", "ray"):
        raise InputError(
            f"--engine {options.engine!r} cannot build a corpus", nearest(options.engine, ("local", "ray"))
        )
    if options.input is not None:
        options.input = options.input.resolve()  # other machines have other working folders
    name = options.corpus or options.source
    task = corpus_task(checked_name(name), open_release(options.source, options.input, read.source_options(options)))
    if options.duplicates != "keep":
        rules = tuple(rule.strip() for rule in options.duplicates_by.split(","))
        task = without_duplicates_task(task, DuplicatesConfig(options.duplicates, rules))
    made = make(runner, [task], options)
    for artifact in made:
        name_corpus(runner.root, name, artifact)
        if options.json:
            _print_json({"corpus": name, **_described(artifact)})
        else:
            _print_counts(f"corpus {name}", artifact)


def fetch(options: argparse.Namespace) -> None:
    """Download a release."""
    from pipeline.cli.fetch import fetch as fetch_release

    fetch_release(options)


def pool(options: argparse.Namespace) -> None:
    """Draw pools."""
    runner = read.runner(options)
    pools = read.selection(options).pools(find_corpus(runner.root, options.corpus))
    _print_made("pools", make(runner, pools, options), options)


def chain(options: argparse.Namespace) -> None:
    """Run the chain up to one stage: embed, index or search."""
    runner = read.runner(options)
    tasks = [task for cell in read.cells(options, runner.root) for task in cell.upto(options.command)]
    if getattr(options, "slice", None):
        _slice(runner, tasks, options.slice)
        return
    repair_stores(runner, options)
    _print_made("artifacts", make(runner, tasks, options), options)


def _slice(runner: Runner, tasks: Sequence[Task], text: str) -> None:
    """Plan the units of tasks, or make one slice of what was planned."""
    if text == "plan":
        from pipeline.cluster.advance import advance

        state = advance(runner.root, runner.resources, tasks, light=False)
        for each in state.pending:
            say(f"{each.task.stage} {each.task.name}: {len(each.left)} of {len(each.units)} units are missing")
        return
    part = Slice.parse(text)
    if not any(runner.published(task) or runner.planned(task) for task in tasks):
        raise InputError("nothing was planned that could be made in slices", "Run it with --slice plan first")
    made = sum(runner.work_slice(task, part) for task in tasks)
    say(f"slice {text}: {made} units made")


def score(options: argparse.Namespace) -> None:
    """Score rankings (eval: after making whatever is missing) and print the table."""
    from pipeline.cli.approximate import compared
    from pipeline.cli.results import print_scores

    runner = read.runner(options)
    cells = read.cells(options, runner.root)
    repair_stores(runner, options)
    made = make(runner, [cell.score for cell in cells], options)
    if made:
        print_scores(runner.root, made, options, compared(runner, cells))


def make(runner: Runner, tasks: Sequence[Task], options: argparse.Namespace) -> list[Artifact]:
    """Make the tasks, or print the plan, and make nothing, where that is all that was asked for.

    Pools come first: what cannot be (a size, a year) is refused before hours of work, not after.
    """
    if options.dry_run:
        _print_plan(runner.plan(tasks), options)
        return []
    for task in tasks:
        pool = task.inputs.get("pool")
        if isinstance(pool, Task):
            runner.make(pool)
    return runner.make_all(tasks)


def repair_stores(runner: Runner, options: argparse.Namespace) -> None:
    """Repair what is stored once for all pools, where that was asked for."""
    if options.repair and not options.dry_run:
        for task in read.stored(options, runner.root):
            runner.make(task)


def _print_made(kind: str, made: Sequence[Artifact], options: argparse.Namespace) -> None:
    if options.json and not options.dry_run:
        _print_json({kind: [_described(artifact) for artifact in made]})
        return
    for artifact in made:
        _print_counts(f"{artifact.manifest.stage} {artifact.name}", artifact)


def _print_plan(steps: Sequence[Step], options: argparse.Namespace) -> None:
    if options.json:
        plan = [
            {
                "stage": step.task.stage,
                "name": step.task.name,
                "path": str(step.path),
                "present": step.present,
                "changed": list(step.changed),
            }
            for step in steps
        ]
        _print_json({"plan": plan})
        return
    for step in steps:
        line = f"{'have' if step.present else 'make':5}{step.task.stage:8}{step.task.name}"
        print(line + (f"  (nearest differs in {'; '.join(step.changed)})" if step.changed else ""))
    missing = sum(not step.present for step in steps)
    say(f"{missing} of {len(steps)} artifacts would be made")


def _described(artifact: Artifact) -> dict[str, Any]:
    manifest = artifact.manifest
    return {
        "stage": manifest.stage,
        "name": artifact.name,
        "id": manifest.id,
        "path": str(artifact.path),
        "config": manifest.config,
        "counts": manifest.counts,
    }


def _print_json(values: Mapping[str, Any]) -> None:
    json.dump(values, sys.stdout, ensure_ascii=False)
    print()


def _print_counts(title: str, artifact: Artifact) -> None:
    print(title)
    for line in _lines(artifact.manifest.counts):
        print(f"  {line}")


def _lines(counts: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, value in counts.items():
        label = name.replace("_", " ")
        if isinstance(value, Mapping):
            lines += [f"{label}:", *(f"  {line}" for line in _lines(value))] if value else []
        elif isinstance(value, int | float):
            lines.append(f"{label:32}{value:>14,}")
    return lines


def doctor(options: argparse.Namespace) -> None:
    """Say what this machine has."""
    from pipeline.cli.doctor import examine, render

    findings = examine(options.root)
    _print_json({"findings": findings}) if options.json else print(render(findings))


def report(options: argparse.Namespace) -> None:
    """Write tables and plots of what was scored."""
    from pipeline.cli.results import write_report

    write_report(read.runner(options).root, options)


def show(options: argparse.Namespace) -> None:
    """Print what there is."""
    from pipeline.cli.show import show as print_what

    print_what(read.runner(options).root, options)


def tune(options: argparse.Namespace) -> None:
    """Tune BM25 on validation queries."""
    from pipeline.cli.tuning import tune as run_tune

    run_tune(options)


def models(options: argparse.Namespace) -> None:
    """List or lock the encoders."""
    from pipeline.cli.encoders import models as run_models

    run_models(options)


def plan(options: argparse.Namespace) -> None:
    """Estimate what embedding takes."""
    from pipeline.cli.encoders import plan as run_plan

    run_plan(options)


def submit(options: argparse.Namespace) -> None:
    """Submit what is missing."""
    from pipeline.cli.batch import submit as run_submit

    run_submit(options)


def collect(options: argparse.Namespace) -> None:
    """Publish what slices made."""
    from pipeline.cli.batch import collect as run_collect

    run_collect(options)


def jobs(options: argparse.Namespace) -> None:
    """Show what was submitted."""
    from pipeline.cli.batch import jobs as show_jobs

    show_jobs(options)


COMMANDS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "fetch": fetch,
    "corpus": corpus,
    "pool": pool,
    "embed": chain,
    "index": chain,
    "tune": tune,
    "search": chain,
    "score": score,
    "eval": score,
    "submit": submit,
    "collect": collect,
    "jobs": jobs,
    "report": report,
    "show": show,
    "plan": plan,
    "models": models,
    "doctor": doctor,
}
