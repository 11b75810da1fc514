"""``mdcr submit``, ``mdcr collect`` and ``mdcr jobs``: run the chain by Slurm."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from pipeline.api import Workspace
from pipeline.cli import options as read
from pipeline.cli.output import print_json
from pipeline.cli.spelling import without
from pipeline.cluster import batch, slurm
from pipeline.cluster.batch import check_not_running
from pipeline.cluster.resume import TRAIN
from pipeline.cluster.script import SlurmSettings
from pipeline.cluster.status import describe, render
from pipeline.core.errors import InputError, require_known
from pipeline.core.progress import say
from pipeline.core.task import Task

STAGES = ("embed", "index", "search", "score", "eval", TRAIN)

_SUBMIT_ONLY = ("--stage", "--nodes", "--gpus", "--partition", "--time", "--recipe")
_OUTPUT = ("--json", "--dry-run")


def submit(options: argparse.Namespace) -> None:
    """Submit the missing work of a stage, or of the whole chain."""
    _stage(options)
    if options.dry_run:
        _print_missing(options, _targets(options, dry=True))
        return
    if not slurm.available():
        raise InputError("sbatch is not on this machine", "Run this on a login node of a Slurm cluster")
    submitted, targets = _batch(options), _targets(options)
    check_not_running(submitted.root, targets, own_batch=submitted)
    resources = read.runner(options).resources
    _print_submission(submitted, batch.start(submitted, _commands(options), _settings(options), targets, resources))


def collect(options: argparse.Namespace) -> None:
    """Verify and publish the output of slices, and submit what is missing; the dependent job runs this."""
    submitted, targets, runner = _batch(options), _targets(options), read.runner(options)
    submission = batch.collect(submitted, _commands(options), _settings(options), targets, runner.resources)
    _print_submission(submitted, submission)
    if submission is None and options.stage in ("score", "eval"):
        from pipeline.cli.results import print_scores

        ids = {task.id for task in targets}
        evaluations = read.evaluations(options, runner)
        print_scores(runner, [evaluation for evaluation in evaluations if evaluation.scores[0].id in ids], options)


def jobs(options: argparse.Namespace) -> None:
    """Show the batches of a workspace."""
    descriptions = [describe(submitted) for submitted in batch.Batch.all(read.runner(options).root)]
    if options.json:
        print_json({"batches": descriptions})
        return
    for description in descriptions:
        print(render(description))
    if not descriptions:
        say("nothing was submitted from this workspace: mdcr submit --help")


def _batch(options: argparse.Namespace) -> batch.Batch:
    words = without(options.words[1:], (*_SUBMIT_ONLY, "--root"), _OUTPUT)
    return batch.Batch.for_command(options.root, _stage(options), ["mdcr", "submit", "--stage", options.stage, *words])


def _stage(options: argparse.Namespace) -> str:
    require_known(options.stage, STAGES, f"--stage={options.stage!r} cannot be submitted")
    if options.repair:
        raise InputError("--repair cannot be submitted", "Run the stage itself with --repair")
    required, forbidden = ("train", ("model",)) if options.stage == TRAIN else ("model", ("train", "set"))
    if not getattr(options, required):
        raise InputError(f"--{required} must be given with --stage={options.stage}", "See mdcr submit --help")
    for name in forbidden:
        if getattr(options, name):
            raise InputError(f"--{name} must not be given with --stage={options.stage}", "Leave it out")
    return str(options.stage)


def _targets(options: argparse.Namespace, *, dry: bool = False) -> list[Task]:
    runner = read.runner(options)
    if options.stage == TRAIN:
        from pipeline.cli.train import read_training
        from pipeline.train.stage import train_task

        return [train_task(Workspace(runner), read_training(options, options.train), dry=dry)]
    evaluations = read.evaluations(options, runner)
    if options.stage in ("score", "eval"):
        tasks = [task for evaluation in evaluations for task in evaluation.scores]
    else:
        tasks = [task for evaluation in evaluations for task in evaluation.upto(options.stage)]
    return list(read.feasible(runner, tasks, options))


def _settings(options: argparse.Namespace) -> SlurmSettings:
    settings = SlurmSettings.read(options.recipe) if options.recipe else SlurmSettings()
    typed = {name: getattr(options, name) for name in ("nodes", "gpus", "partition", "time")}
    return dataclasses.replace(settings, **{name: value for name, value in typed.items() if value is not None})


def _commands(options: argparse.Namespace) -> batch.Commands:
    """Return the commands of the jobs: other subcommands with the options of this command."""
    program = ["mdcr"] if _settings(options).image else [sys.executable, "-m", "pipeline"]
    words = without(options.words[1:], (), _OUTPUT)
    if options.stage == TRAIN:  # --recipe is a recipe of training there, and Slurm settings here
        training = without(words, {*_submit_only_options(TRAIN)[0], "--recipe"}, ())
        return batch.Commands(program, lambda _: ["--recipe", options.train, *training], words)
    return batch.Commands(program, lambda name: without(words, *_submit_only_options(name)), words)


def _submit_only_options(name: str) -> tuple[set[str], set[str]]:
    """Return the options with a value, and the flags, that ``mdcr submit`` takes but another command does not."""
    from pipeline.cli.arguments import parser

    commands = parser()[1]
    extra = {text: valued for text, valued in commands["submit"].options.items() if text not in commands[name].options}
    return {text for text, valued in extra.items() if valued}, {text for text, valued in extra.items() if not valued}


def _print_missing(options: argparse.Namespace, targets: Sequence[Task]) -> None:
    for step in read.runner(options).plan(targets):
        how = "" if step.present else "  in slices" if step.task.units is not None else "  by one job"
        print(read.plan_line(step) + how + read.downloads_first(step))


def _print_submission(submitted: batch.Batch, submission: batch.Round | None) -> None:
    if submission is None:
        say(f"{submitted.folder.name}: all published")
        return
    for stage, job in submission.arrays.items():
        say(f"{stage}: array job {job}, {submission.slices} slices; script {submitted.folder / f'{stage}.sh'}")
    for subcommand, job in submission.whole_jobs.items():
        say(f"{subcommand}: job {job}; script {submitted.folder / f'{subcommand}-whole.sh'}")
    say(f"then: job {submission.collect} verifies, publishes and goes on; progress: mdcr jobs")
