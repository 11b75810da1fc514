"""State of a batch for ``mdcr jobs``: finished units, papers per second, states of the jobs, failures."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.cluster import slurm
from pipeline.cluster.batch import Batch, artifact_of
from pipeline.cluster.script import log_of
from pipeline.core.manifest import MANIFEST
from pipeline.core.workdir import Workdir


def describe(batch: Batch) -> dict[str, Any]:
    """Return the state of a batch: command, work of the last round, states of the jobs, failures."""
    summary = {"batch": batch.folder.name, "command": " ".join(batch.command), "finished": batch.finished}
    summary["rounds"] = len(batch.rounds)
    if not batch.rounds:
        return summary
    latest = batch.rounds[-1]
    summary["log"] = str(log_of(batch.logs, latest.collect, None))
    if batch.finished:
        return summary
    started = _start_time(batch)
    work = [_progress(batch.root, folder, units, started) for folder, units in latest.work.items()]
    states = slurm.status(latest.jobs) if slurm.available() else []
    return summary | {
        "attempt": latest.attempt,
        "work": work,
        "whole": {Path(folder).name: (batch.root / folder / MANIFEST).is_file() for folder in latest.whole},
        "jobs": {"arrays": dict(latest.arrays), "whole": dict(latest.whole_jobs), "collect": latest.collect},
        "states": dict(Counter(state.state + (f" ({state.reason})" if state.stuck else "") for state in states)),
        "failures": batch.failures() if states else [],
    }


def render(summary: Mapping[str, Any]) -> str:
    """Return the state of a batch as lines of text."""
    lines = [f"{summary['batch']}  {summary['command']}"]
    if summary["finished"]:
        lines.append(f"  all published, in {summary['rounds']} round(s); the last log: {summary['log']}")
        return "\n".join(lines)
    for work in summary.get("work", ()):
        progress = f"{work['done']}/{work['units']} units, {work['papers_done']:,}/{work['papers']:,} papers"
        if work["papers_per_second"]:
            progress += f", {work['papers_per_second']:,.1f} papers/s, about {work['seconds_left']:,.0f} s left"
        lines.append(f"  {work['name']}: {progress}")
    lines += [f"  {name}: {'made' if made else 'not made'}" for name, made in summary.get("whole", {}).items()]
    if summary.get("jobs"):
        jobs = [*summary["jobs"]["arrays"].values(), *summary["jobs"]["whole"].values()]
        jobs.append(summary["jobs"]["collect"])
        states = ", ".join(f"{count} {state}" for state, count in summary["states"].items())
        states = states or f"not known to Slurm; the last log: {summary['log']}"
        lines.append(f"  attempt {summary['attempt']}, jobs {', '.join(map(str, jobs))}: {states}")
    lines += [f"  {line}" for failure in summary.get("failures", ()) for line in failure.splitlines()]
    return "\n".join(lines)


def _progress(root: Path, folder: str, units: Mapping[str, int], started: float | None) -> dict[str, Any]:
    artifact = root / artifact_of(folder)
    work = Workdir(root / folder)
    published = (artifact / MANIFEST).is_file()
    stamps = {unit: stamp for unit in units if (stamp := work.finished_at(unit)) is not None}
    done_units = list(units if published else stamps)
    papers, papers_done = sum(units.values()), sum(units[unit] for unit in done_units)
    rate = 0.0
    if started is not None and not published:
        recent = {unit: stamp for unit, stamp in stamps.items() if stamp >= started}
        rate = sum(units[unit] for unit in recent) / max(max(recent.values(), default=0.0) - started, 1.0)
    return {
        "name": artifact.name,
        "units": len(units),
        "done": len(done_units),
        "papers": papers,
        "papers_done": papers_done,
        "papers_per_second": round(rate, 2),
        "seconds_left": round((papers - papers_done) / rate, 1) if rate else None,
    }


def _start_time(batch: Batch) -> float | None:
    """Return the start time of the last round's first slice, from the logs, in seconds since 1970; None if unknown."""
    stamps = []
    for job in batch.rounds[-1].arrays.values():
        for log in batch.logs.glob(f"{job}_*.log"):
            with log.open(errors="replace") as lines:
                try:
                    stamps.append(datetime.datetime.fromisoformat(lines.readline().split(" ")[0]).timestamp())
                except ValueError:
                    continue
    return min(stamps, default=None)
