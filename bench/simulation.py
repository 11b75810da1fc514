"""Workers that make units, fail, straggle and start again: fixed slices (Slurm) against a pool of tasks (Ray)."""

from __future__ import annotations

import dataclasses
import heapq
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy

from pipeline.encode.shards import PART_PAPERS

LOAD_SECONDS = 30.0
"""Seconds a process takes to start, load the encoder and compile: assumed."""


@dataclass(frozen=True)
class World:
    """What may go wrong, and when.

    Attributes:
        rate: papers a second of a worker at full speed.
        load: seconds before a worker's first unit.
        turn: seconds a unit costs beside its papers: opening, writing, checksums.
        spread: relative standard deviation of a unit's time.
        slow_share: share of workers that are slow for the whole run.
        slow_factor: times as long as others they take.
        mtbf: hours between failures of one worker.
        requeue: seconds until Slurm or Ray starts something again.
        part: papers after which a killed unit goes on.
    """

    rate: float
    load: float = LOAD_SECONDS
    turn: float = 2.0
    spread: float = 0.05
    slow_share: float = 0.05
    slow_factor: float = 2.0
    mtbf: float = 100.0
    requeue: float = 120.0
    part: int = PART_PAPERS


def calm(rate: float) -> World:
    """Return a world where nothing goes wrong and nothing costs but papers."""
    return World(rate, 0.0, 0.0, 0.0, 0.0, 1.0, math.inf, 0.0)


@dataclass(frozen=True)
class Outcome:
    """What a simulated run took.

    Attributes:
        makespan: seconds until the last unit.
        efficiency: seconds of computing there are, by all workers' seconds until the end.
        paid: the same by the seconds that workers were held: a slice that ends frees its worker.
        failures: how many.
        units: finished, to be compared with how many there were.
    """

    makespan: float
    efficiency: float
    paid: float
    failures: int
    units: int


class _Run:
    def __init__(self, sizes: Sequence[int], workers: int, world: World, seed: int) -> None:
        self.env = simpy.Environment()
        self.world, self.sizes = world, sizes
        self.chance = np.random.default_rng(seed)
        slow = self.chance.random(workers) < world.slow_share
        self.speed = np.where(slow, 1.0 / world.slow_factor, 1.0)
        self.fails = [self._next_failure() for _ in range(workers)]
        self.failures, self.finished, self.held = 0, 0, 0.0

    def _next_failure(self) -> float:
        mtbf = self.world.mtbf
        return math.inf if math.isinf(mtbf) else self.env.now + self.chance.exponential(mtbf * 3600)

    def work(self, worker: int, seconds: float) -> Iterator[Any]:
        """Compute for so long; return the seconds done when a failure comes first, else None."""
        left = self.fails[worker] - self.env.now
        if left >= seconds:
            yield self.env.timeout(seconds)
            return None
        yield self.env.timeout(max(left, 0.0))
        self.failures += 1
        yield self.env.timeout(self.world.requeue)
        self.fails[worker] = self._next_failure()
        return max(left, 0.0)

    def unit(self, worker: int, size: int) -> Iterator[Any]:
        """Make one unit, again from its last part after each failure; a restart loads the encoder anew."""
        rate = self.world.rate * self.speed[worker] / max(0.2, 1.0 + self.world.spread * self.chance.standard_normal())
        left = float(size)
        overhead = self.world.turn
        while True:
            lost = yield from self.work(worker, overhead + left / rate)
            if lost is None:
                self.finished += 1
                return
            done = max(0.0, lost - overhead) * rate
            left = min(left, left - done // self.world.part * self.world.part)
            overhead = self.world.turn + self.world.load

    def load(self, worker: int) -> Iterator[Any]:
        while (yield from self.work(worker, self.world.load)) is not None:
            continue

    def outcome(self, workers: int) -> Outcome:
        useful = sum(self.sizes) / self.world.rate
        return Outcome(
            self.env.now, useful / (workers * self.env.now), useful / self.held, self.failures, self.finished
        )


def static(sizes: Sequence[int], workers: int, world: World, seed: int) -> Outcome:
    """Fixed slices: as Slurm arrays run them, each worker its own units, freed when they are done."""
    run = _Run(sizes, workers, world, seed)
    slices: list[list[int]] = [[] for _ in range(workers)]
    totals = [(0, number) for number in range(workers)]
    for size in sorted(sizes, reverse=True):
        total, number = heapq.heappop(totals)
        slices[number].append(size)
        heapq.heappush(totals, (total + size, number))

    def worker(number: int) -> Iterator[Any]:
        if slices[number]:
            yield from run.load(number)
            for size in slices[number]:
                yield from run.unit(number, size)
            run.held += run.env.now

    run.env.run(run.env.all_of([run.env.process(worker(number)) for number in range(workers)]))
    return run.outcome(workers)


def dynamic(sizes: Sequence[int], workers: int, world: World, seed: int, turns: int = 4) -> Outcome:
    """Tasks of a pool: as Ray runs them, batches of units to whoever is free; each batch loads the encoder."""
    run = _Run(sizes, workers, world, seed)
    count = min(len(sizes), workers * turns)
    batches = [list(sizes[number::count]) for number in range(count)]

    def worker(number: int) -> Iterator[Any]:
        while batches:
            batch = batches.pop(0)
            yield from run.load(number)
            for size in batch:
                yield from run.unit(number, size)

    run.env.run(run.env.all_of([run.env.process(worker(number)) for number in range(workers)]))
    run.held = workers * run.env.now
    return run.outcome(workers)


def shards_of(papers: int, size: int) -> list[int]:
    """Return the sizes of the shards of so many papers."""
    return [min(size, papers - start) for start in range(0, papers, size)]


def mean(outcomes: Iterable[Outcome]) -> dict[str, float]:
    found = [dataclasses.asdict(each) for each in outcomes]
    return {name: statistics.fmean(each[name] for each in found) for name in found[0]}
