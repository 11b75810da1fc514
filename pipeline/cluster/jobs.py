"""Jobs of Slurm, by submitit: ``runs/jobs/NAME`` has files of those submitted together."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.core import files
from pipeline.core.artifact import readable
from pipeline.core.errors import InputError
from pipeline.core.install import optional
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import JOBS

_RECORD = "record.json"
_SECONDS = 120.0
"""Time limit of a command of Slurm; a busy controller answers late."""

_POLL_SECONDS = 5.0
_FINAL = re.compile("BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|ENDED|FAILED|NODE_FAIL|OUT_OF|PREEMPTED|REVOKED|TIMEOUT")
_OURS = {"job_name": "mdcr", "time": None, "wckey": None, "use_srun": False, "stderr_to_stdout": True}
"""Parameters in place of submitit's defaults; None leaves it to Slurm."""

_KEPT = r"SLURM_(CONF|JWT|CLUSTERS)|SBATCH_(?!.*BIND).*"
"""Variables that a site or a user sets, and not a job."""


@dataclass(frozen=True)
class Jobs:
    """The jobs in one folder; ``record`` has the ``command`` of a driver, or ``work``, the folder of workers."""

    folder: Path
    record: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def all(cls, root: Path) -> list[Jobs]:
        """Return the jobs of a workspace, by folder; those whose record is damaged are left out with a line."""
        return list(readable(cls.records(root), cls.opened))

    @staticmethod
    def records(root: Path) -> list[Path]:
        """Return the files of records of a workspace, in order."""
        return sorted((root.resolve() / JOBS).glob(f"*/{_RECORD}"))

    @classmethod
    def opened(cls, record: Path) -> Jobs:
        """Return the jobs of a record; raise InputError if it is damaged."""
        content = files.read_json(record)
        if not isinstance(content, dict) or not isinstance(content.get("work", content.get("command")), str):
            raise InputError(f"{record} is damaged", "See squeue for its jobs, then remove its folder")
        return cls(record.parent, content)

    @property
    def ids(self) -> list[str]:
        """Their ids, such as ``12`` or ``12_3``, in order."""
        names = [path.name.removesuffix("_submitted.pkl") for path in self.folder.glob("*_submitted.pkl")]
        return sorted(names, key=lambda name: [int(part) for part in name.split("_")])

    @property
    def work(self) -> Workdir | None:
        """The work folder in which they make units."""
        return Workdir(Path(self.record["work"])) if "work" in self.record else None

    def log(self, job: str) -> Path:
        """Return the file that Slurm writes the output of a job to."""
        return self.folder / f"{job}_0_log.out"

    def alive(self) -> dict[str, str]:
        """Return the jobs that wait or run, with their states; all of them if Slurm does not answer."""
        return {job: state for job, state in states(self.ids).items() if not finished(state)}

    def submit(
        self,
        parameters: Mapping[str, Any],
        record: Mapping[str, Any],
        function: Callable[..., Any],
        *arguments: Iterable[Any],
    ) -> list[Any]:
        """Submit a job for each item of ``arguments``, as one array, and return submitit's jobs.

        Raises:
            InputError: Slurm or submitit refuses the parameters, or Slurm is not here.
        """
        submitit, queue = optional("submitit", "--on=slurm", "slurm"), self._queue(parameters)
        self.folder.mkdir(parents=True, exist_ok=True)
        files.write_text(self.folder / _RECORD, json.dumps(record))
        kept = {name: value for name, value in os.environ.items() if re.fullmatch(_KEPT, name)}
        try:
            with submitit.helpers.clean_env(), redirect_stderr(io.StringIO()):  # a job inherits nothing of this one
                os.environ.update(kept)
                return list(queue.map_array(function, *arguments))
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
            reasons = dict.fromkeys(re.findall("error: (.*)", str(error)) or str(error).splitlines()[-1:])
            remedy = "sinfo shows what there is; docs/clusters.md has the settings"
            raise InputError(f"Slurm refuses the job: {'; '.join(reasons)}", remedy) from error

    def script(self, parameters: Mapping[str, Any], count: int) -> str:
        """Return the script of an array of ``count`` jobs, or of one job."""
        queue = self._queue(parameters)
        queue.parameters |= {"map_count": count} if count > 1 else {}
        return str(queue._make_submission_file_text(queue._submitit_command_str, ""))

    def _queue(self, parameters: Mapping[str, Any]) -> Any:
        """Return submitit's executor with parameters; Slurm's own defaults hold for the others."""
        given = dict(parameters)
        python, setup = given.pop("python", None), given.pop("setup", [])
        if not isinstance(setup, list):
            raise InputError(f"setup = {setup!r} must be a list of lines", "Put it in brackets")
        try:
            queue = optional("submitit", "--on=slurm", "slurm").SlurmExecutor(self.folder, python=python)
            given["setup"] = ["set -eo pipefail", *setup]
            given["additional_parameters"] = {"requeue": True, **given.get("additional_parameters", {})}
            queue.update_parameters(**_OURS | given)
        except RuntimeError as error:
            raise InputError("srun is not on this machine", "Run this on a login node of a Slurm cluster") from error
        except (TypeError, ValueError) as error:
            refusal = " ".join(str(error).split())
            raise InputError(
                f"submitit refuses the settings of a job: {refusal}", "Correct the --slurm file"
            ) from error
        return queue

    def clear(self) -> None:
        """Remove the record and the pickles; scripts and logs stay."""
        for path in (*self.folder.glob("*.pkl"), *self.folder.glob(".submission*"), self.folder / _RECORD):
            path.unlink(missing_ok=True)

    def describe(self) -> dict[str, Any]:
        """Return purpose, units and states of the jobs, and the last line of each log."""
        work = []
        if folder := self.work:
            units = folder.plan() or {}
            name = folder.path.name.removeprefix(".").removesuffix(".partial")
            made = (folder.path.with_name(name) / MANIFEST).is_file()
            work.append({"artifact": name, "units": len(units), "done": sum(map(folder.done, units)), "made": made})
        found = states(self.ids).items()
        logs = [{"job": job, "state": state, "last": _last_line(self.log(job))} for job, state in found]
        return {"jobs": self.folder.name, "command": self.record.get("command"), "work": work, "states": logs}


def finished(state: str) -> bool:
    """Return whether Slurm will not run a job again, unless somebody requeues it."""
    return bool(_FINAL.match(state))


def states(jobs: Iterable[str]) -> dict[str, str]:
    """Return the state of each job in Slurm's queue, with its reason.

    A job that Slurm has forgotten is ``ENDED``; if Slurm does not answer, all are ``unknown``, with its reason.
    """
    wanted, known = list(jobs), {}
    command = ["squeue", "--me", "--array", "--states=all", "--noheader", "--format=%i|%T|%r"] if wanted else ["true"]
    try:
        queue = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS).stdout
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
        say(f"Slurm does not answer ({reason})")
        return dict.fromkeys(wanted, f"unknown ({reason})")
    for line in queue.splitlines():
        job, state, reason = line.split("|", 2)
        known[job] = state if reason == "None" else f"{state} ({reason})"
    return {job: known.get(job, "ENDED") for job in wanted}


def cancel(jobs: Iterable[str]) -> None:
    """Cancel jobs. The command outlives this process, which may be about to end."""
    if ids := list(jobs):
        silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.Popen(["scancel", *ids], start_new_session=True, **silent)


def wait_for_workers(root: Path, folder: Path) -> None:
    """Wait until no job makes units in a work folder, as those of a driver that was killed still do.

    Workers take no lock, so a process that opens their folder would delete their files.
    """
    for jobs in Jobs.all(root):
        if not jobs.work or jobs.work.path != folder.resolve() or not (alive := jobs.alive()):
            continue
        if shutil.which("squeue") is None:
            say(f"jobs of {jobs.folder.name} may still make the same units: look on a login node of the cluster")
            continue
        say(f"waiting for jobs that make the same units: {' '.join(alive)} (or scancel them)")
        while jobs.alive():
            time.sleep(_POLL_SECONDS)


def _last_line(log: Path) -> str:
    """Return the last line of a log that is not submitit's own, such as of signals that it passes by."""
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return next((line for line in reversed(lines) if line.strip() and not line.startswith("submitit ")), "(no log yet)")
