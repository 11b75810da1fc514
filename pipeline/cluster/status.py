"""What ``mdcr jobs`` shows of a batch: finished units, papers a second, states of the jobs, failures."""

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
    """Return the state of a batch: its command, its last round's work, the states of its jobs, its failures."""
    described = {"batch": batch.folder.name, "command": " ".join(batch.command), "finished": batch.finished}
    described["rounds"] = len(batch.rounds)
    if not batch.rounds:
        return described
    last = batch.rounds[-1]
    described["log"] = str(log_of(batch.logs, last.collect, None))
    if batch.finished:
        return described
    started = _started(batch)
    work = [_progress(batch.root, folder, units, started) for folder, units in last.work.items()]
    states = slurm.status(last.jobs) if slurm.available() else []
    return described | {
        "attempt": last.attempt,
        "work": work,
        "whole": {Path(folder).name: (batch.root / folder / MANIFEST).is_file() for folder in last.whole},
        "jobs": {"arrays": dict(last.arrays), "whole": dict(last.whole_jobs), "collect": last.collect},
        "states": dict(Counter(s.state + (f" ({s.reason})" if s.stuck else "") for s in states)),
        "failures": batch.failures() if states else [],
    }


def render(described: Mapping[str, Any]) -> str:
    """Return the lines a user reads."""
    lines = [f"{described['batch']}  {described['command']}"]
    if described["finished"]:
        lines.append(f"  all published, in {described['rounds']} round(s); the last log: {described['log']}")
        return "\n".join(lines)
    for work in described.get("work", ()):
        done = f"{work['done']}/{work['units']} units, {work['papers_done']:,}/{work['papers']:,} papers"
        if work["papers_per_second"]:
            done += f", {work['papers_per_second']:,.1f} papers/s, about {work['seconds_left']:,.0f} s left"
        lines.append(f"  {work['name']}: {done}")
    lines += [f"  {name}: {'made' if made else 'not made'}" for name, made in described.get("whole", {}).items()]
    if described.get("jobs"):
        jobs = [*described["jobs"]["arrays"].values(), *described["jobs"]["whole"].values()]
        jobs.append(described["jobs"]["collect"])
        states = ", ".join(f"{count} {state}" for state, count in described["states"].items())
        states = states or f"not known to Slurm; the last log: {described['log']}"
        lines.append(f"  attempt {described['attempt']}, jobs {', '.join(map(str, jobs))}: {states}")
    lines += [f"  {line}" for failure in described.get("failures", ()) for line in failure.splitlines()]
    return "\n".join(lines)


def _progress(root: Path, folder: str, units: Mapping[str, int], started: float | None) -> dict[str, Any]:
    artifact = root / artifact_of(folder)
    work = Workdir(root / folder)
    published = (artifact / MANIFEST).is_file()
    stamps = {unit: stamp for unit in units if (stamp := work.finished_at(unit)) is not None}
    done = list(units if published else stamps)
    papers, papers_done = sum(units.values()), sum(units[unit] for unit in done)
    rate = 0.0
    if started is not None and not published:
        recent = {unit: stamp for unit, stamp in stamps.items() if stamp >= started}
        rate = sum(units[unit] for unit in recent) / max(max(recent.values(), default=0.0) - started, 1.0)
    return {
        "name": artifact.name,
        "units": len(units),
        "done": len(done),
        "papers": papers,
        "papers_done": papers_done,
        "papers_per_second": round(rate, 2),
        "seconds_left": round((papers - papers_done) / rate, 1) if rate else None,
    }


def _started(batch: Batch) -> float | None:
    """Return when the first slice of the last round started, by the first line of its log."""
    stamps = []
    for job in batch.rounds[-1].arrays.values():
        for log in batch.logs.glob(f"{job}_*.log"):
            with log.open(errors="replace") as lines:
                try:
                    stamps.append(datetime.datetime.fromisoformat(lines.readline().split(" ")[0]).timestamp())
                except ValueError:
                    continue
    return min(stamps, default=None)
