"""Make the 32 neighbours of 5,000 papers: tags, edits, and the corpus that holds them.

    python bench/neighbours.py FOLDER/NAME.jsonl.gz [--quick] [--workers 2]

The file holds English papers (id, title, abstract); the first 5,000 are used. A corpus is tagged once; that time is
given apart. Wall time includes the start of worker processes.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import resource
import tempfile
import time
from pathlib import Path

from pipeline.core import progress
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.sources.collection import JsonLines
from pipeline.stages.corpus import corpus_task
from pipeline.studies.neighbours.corpus import NeighboursConfig, neighbours_task
from pipeline.studies.neighbours.operators import CLASSES
from pipeline.studies.neighbours.tagging import tags_task

PAPERS, QUICK = 5_000, 500


def processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    progress.set_quiet(True)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        papers = root / "papers.jsonl"
        with gzip.open(options.input, "rt", encoding="utf-8") as lines:
            papers.write_text("".join(itertools.islice(lines, QUICK if options.quick else PAPERS)), encoding="utf-8")
        runner = Runner(root, Resources(workers=options.workers))
        corpus = runner.make(corpus_task("papers", JsonLines(papers, columns="paper_id=id")))
        steps = {
            "tags": tags_task(corpus),
            "neighbours": neighbours_task(corpus, NeighboursConfig("all")),
        }
        for name, task in steps.items():
            wall, processor = time.perf_counter(), processor_seconds()
            counts = runner.make(task).manifest.counts
            figures[f"{name}_seconds"] = round(time.perf_counter() - wall, 1)
            figures[f"{name}_processor_seconds"] = round(processor_seconds() - processor, 1)
            print(
                f"{name:<12}{figures[f'{name}_seconds']:>8} s wall{figures[f'{name}_processor_seconds']:>8} s processor"
            )
    made = sum(counts["neighbours"].values())
    total = sum(figures[f"{name}_seconds"] for name in steps)
    print(f"{counts['papers']:,} papers x {len(CLASSES)} classes: {made:,} neighbours in {total:.1f} s")
    print(json.dumps({**figures, "papers": counts["papers"], "neighbours": made, "workers": options.workers}))


if __name__ == "__main__":
    main()
