"""``mdcr submit`` and ``mdcr jobs``: run a command as a job of Slurm, and show the jobs of a workspace."""

from __future__ import annotations

import argparse
import shutil

from pipeline.cli import options as read
from pipeline.cli.output import print_json
from pipeline.cluster.jobs import Jobs
from pipeline.cluster.settings import REQUESTED
from pipeline.cluster.slurm import drive
from pipeline.core.config import counted, digest
from pipeline.core.errors import InputError
from pipeline.core.progress import say
from pipeline.core.workspace import JOBS

STAGES = {
    **{name: [name] for name in ("corpus", "embed", "index", "search", "score", "eval", "study", "train")},
    "benchmark": ["study", "mdcr"],
}


def submit(options: argparse.Namespace) -> None:
    """Submit a job, the driver, that runs a command and submits the units of its work as further jobs."""
    from pipeline.cli.parsers import read as parsed
    from pipeline.cli.parsers import run

    root, settings = options.root.resolve(), read.slurm_settings(options)
    words = [*STAGES[options.stage], *options.others, f"--root={root}"]
    driver, workers = settings.driver, settings.nodes
    if options.stage == "train":  # one job with the GPUs
        driver, workers = settings.worker, 0
        words += ["--device=cuda"] if settings.gpus and not any(w.startswith("--device") for w in words) else []
    else:
        typed = {name: getattr(options, name) for name in REQUESTED}
        typed["slurm"] = options.slurm and options.slurm.resolve()
        words += ["--on=slurm", *(f"--{name}={value}" for name, value in typed.items() if value is not None)]
    run(parsed([*words, "--dry-run"]))
    command, jobs = " ".join(["mdcr", *words]), Jobs(root / JOBS / f"{options.stage}-{digest(words)[:8]}")
    say("This node plans only, as above; the driver makes what is not divided into units, workers make the units.")
    if options.dry_run and shutil.which("srun") is None:
        say("srun is not on this machine: a login node shows the scripts of the jobs too")
    elif options.dry_run:
        print(f"\n# the driver: {command}\n{jobs.script(driver, 1)}")
        print(f"\n# workers, for each set of units\n{jobs.script(settings.worker, workers)}" if workers else "")
    elif alive := jobs.alive():
        job, state = next(iter(alive.items()))
        raise InputError(f"job {job}, {state}, runs this command already", f"See mdcr jobs, or scancel {job}")
    else:
        jobs.clear()
        driver = {**driver, "setup": ["trap : TERM", *driver.get("setup", ())]}  # scancel must not end the shell first
        (job,) = jobs.submit(driver, {"command": command}, drive, [words])
        say(f"job {job.job_id} is the driver; its log: {jobs.log(job.job_id)}; progress: mdcr jobs")


def jobs(options: argparse.Namespace) -> None:
    """Show the jobs of a workspace."""
    found = [jobs.describe() for jobs in Jobs.all(options.root)]
    if options.json:
        print_json({"jobs": found})
        return
    for group in found:
        print(f"{group['jobs']}  {group['command'] or 'workers'}")
        for work in group["work"]:
            done = "published" if work["made"] else f"{work['done']}/{counted(work['units'], 'unit')}"
            print(f"  {work['artifact']}: {done}")
        for job in group["states"]:
            print(f"  job {job['job']} {job['state']}: {job['last']}")
    if found:
        say(f"tables: at the end of a driver's log in {options.root / JOBS}, and by mdcr show; pages: mdcr report")
    else:
        say("nothing was submitted from this workspace: mdcr submit --help")
