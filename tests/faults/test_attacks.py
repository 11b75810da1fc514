"""Attacks on every command that takes a file or a value of a user: one line, or the figures of an undisturbed run."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.encode import lsa, precomputed
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.faults.hostile import SPECIAL
from tests.faults.tally import Tally
from tests.faults.workspace import leftovers
from tests.sources.test_mteb import DOCUMENTS, QUERIES, Tables, datasets_cache, drawn, write_task

__all__ = ["datasets_cache"]

pytestmark = pytest.mark.usefixtures("limit")


POOL = "--queries 10 --size all --samples 1 --workers 1"
EVAL = f"eval {POOL} --measures map --model"
GOOD = {
    "good.qrels": "q 0 d 1\n",
    "good.run": "q Q0 d 1 1.0 x\n",
    "papers.jsonl": '{"paper_id": "1", "title": "A"}\n{"paper_id": "2", "title": "B", "references": ["1"]}\n',
}
PAPERS = "corpus --source jsonl --input {root}/papers.jsonl --corpus new --workers 1"

# Commands that read a file of the user, {file}, by the ending of its name.
READERS: Sequence[tuple[str, str]] = [
    *((ending, "evaluate --qrels {root}/good.qrels --run {file}") for ending in ("trec", "json", "parquet")),
    *((ending, "evaluate --run {root}/good.run --qrels {file}") for ending in ("trec", "json", "parquet")),
    *((ending, f"{EVAL} vectors:{{file}}") for ending in ("npy", "parquet", "jsonl")),
    ("run", f"{EVAL} run:{{file}}"),
    ("jsonl", f"{PAPERS} --contexts {{file}}"),
    ("tsv", f"{PAPERS} --citations {{file}}"),
    ("jsonl", "corpus --source jsonl --input {file}"),
    ("bib", "corpus --source bibtex --input {file}"),
    ("txt", f"pool {POOL} --exclude {{file}}"),
    ("toml", f"{EVAL} bm25 --on slurm --slurm {{file}}"),
    ("toml", "study pool_size --recipe {file}"),
    ("toml", "train {file}"),
    ("key", "fetch s2ag --endpoint http://127.0.0.1:9 --api-key-file {file}"),
    ("zip", "leaderboard --add {file}"),
    ("tsv", "audit {file}"),
]


@pytest.fixture(scope="module")
def tiny(tiny: Path) -> Path:
    """Return the workspace with a pool and scores of BM25, beside small files that are good."""
    mdcr_json(tiny, *flags(f"{EVAL} bm25"))
    for name, text in GOOD.items():
        (tiny / name).write_text(text)
    return tiny


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize(("ending", "command"), READERS, ids=[f"{end}: {words[:40]}" for end, words in READERS])
def test_only_regular_files_are_read(
    ending: str, command: str, kind: str, tiny: Path, tmp_path: Path, tally: Tally
) -> None:
    file = tmp_path / f"x.{ending}"
    SPECIAL[kind](file)
    tally.count("tried")
    one_line_error(mdcr(tiny, *flags(command.format(root=tiny, file=file))))
    assert not leftovers(tiny)
    tally.count("refused")


_EVERY = [f"d{number:02}" for number in range(DOCUMENTS)]

# Rows that replace those of a table, and what the corpus counts, or None: it is refused.
TABLES: Sequence[tuple[str, list[Mapping[str, Any]], str | None]] = [
    ("corpus", [{"_id": name, "title": {"a": 1}, "text": "T"} for name in _EVERY], "title not a text"),
    ("corpus", [{"_id": [name], "title": "T", "text": "T"} for name in _EVERY], None),
    ("queries", [{"_id": query, "text": 5} for query in QUERIES], None),
    ("instruction", [{"query-id": query, "instruction": ["a"]} for query in QUERIES], None),
    ("default", [{"query-id": query, "corpus-id": "d00", "score": None} for query in QUERIES], None),
    ("top_ranked", [{"query-id": query, "corpus-ids": ["d00", None]} for query in QUERIES], None),
    ("top_ranked", [{"query-id": query, "corpus-ids": 5} for query in QUERIES], None),
]


@pytest.mark.parametrize(("name", "rows", "counted"), TABLES)
def test_values_of_other_types_are_counted_or_refused(
    name: str, rows: list[Mapping[str, Any]], counted: str | None, tmp_path: Path, tally: Tally
) -> None:
    tables: Tables = drawn() | {name: rows}
    tally.count("tried")
    words = ["corpus", "--source", "mteb", "--task", "SCIDOCS", "--input", str(write_task(tmp_path / "task", tables))]
    result = mdcr(tmp_path / "root", *words, "--workers", "1")
    if counted is None:
        one_line_error(result)
        tally.count("refused")
    else:
        assert result.returncode == 0, result.stderr
        assert counted in result.stderr
        tally.count("counted")


def test_an_unknown_backend_of_matplotlib_is_refused(tally: Tally) -> None:
    """In a process of its own, since matplotlib reads the variable when it is imported."""
    script = "from pipeline.scores.plot import drawing\nwith drawing(): pass"
    tally.count("tried")
    environment = os.environ | {"MPLBACKEND": "abc"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert "InputError: MPLBACKEND must be a backend of matplotlib, got 'abc'" in done.stderr
    tally.count("refused")


@pytest.mark.parametrize("room", ["runs/tunings", "runs/scores"])
def test_an_artifact_that_lost_its_manifest_is_said(room: str, tiny: Path, tmp_path: Path, tally: Tally) -> None:
    """A tuning decides what ``bm25`` is, so its commands end; listings say what they leave out."""
    root = shutil.copytree(tiny, tmp_path / "root")
    assert mdcr(root, *flags("tune --size all --queries 10 --workers 1")).returncode == 0
    folder = next(path.parent for path in sorted(root.glob(f"{room}/*/manifest.json")))
    (folder / "manifest.json").unlink()
    tally.count("tried")
    if room == "runs/tunings":
        assert folder.name in one_line_error(mdcr(root, *flags(f"{EVAL} bm25")))
        repaired = mdcr(root, *flags(f"{EVAL} bm25 --repair"))
        assert repaired.returncode == 0, repaired.stderr
        assert (folder / "manifest.json").is_file()
    else:
        assert folder.name in mdcr(root, "show", "table").stderr
    tally.count("refused")


def test_what_killed_exports_and_additions_leave_goes(tiny: Path, tmp_path: Path, tally: Tally) -> None:
    tally.count("tried", 2)
    ended = subprocess.Popen(["true"])
    ended.wait()
    suffix = files.temporary_suffix().replace(f"-{os.getpid()}.", f"-{ended.pid}.")
    export, addition = tmp_path / f".queries.jsonl{suffix}", tiny / f"runs/submissions/.mine.abc{suffix}"
    export.touch()
    addition.mkdir(parents=True)
    (addition / "run").touch()
    assert mdcr(tiny, *flags(f"export run {POOL} --model bm25 --output {tmp_path}")).returncode == 0
    (tmp_path / "mine.zip").write_bytes(b"none")
    one_line_error(mdcr(tiny, "leaderboard", "--add", str(tmp_path / "mine.zip")))
    assert not export.exists()
    assert not addition.exists()
    tally.count("resumed", 2)


def test_word_vectors_hold_no_list_of_all_tokens() -> None:
    """gensim reads the texts again in every pass."""
    sentences = lsa._Sentences(["One two, two.", "Three"])
    assert [list(sentences) for _ in range(2)] == [[["one", "two", "two"], ["three"]]] * 2
    assert not isinstance(iter(sentences), list)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_flipped_bits_of_vectors_end_in_a_line(compression: str, tmp_path: Path, tally: Tally) -> None:
    """In processes of their own, since damaged offsets of Arrow may end the process that follows them."""
    ids = pa.array([f"p{row}" for row in range(30)]).dictionary_encode()
    table = pa.table({"id": ids, "vector": np.random.default_rng(1).normal(size=(30, 6)).tolist()})
    file, chance = tmp_path / "x.parquet", random.Random(compression)
    pq.write_table(table, file, compression=compression)
    whole = file.read_bytes()
    for _ in range(25):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        file.write_bytes(damaged)
        tally.count("tried")
        child = os.fork()
        if child == 0:
            os._exit(_read_vectors(file))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 2), code
        tally.count("refused" if code else "harmless")


def _read_vectors(file: Path) -> int:
    """Return 0 if the vectors of a file are read, 2 if it is refused, 70 after any other error."""
    try:
        for vectors in precomputed.find(file):
            list(precomputed.read(vectors, lambda ids: np.arange(len(ids.to_pylist()))))
    except InputError:
        return 2
    except BaseException:  # noqa: BLE001 - the process ends here
        return 70
    return 0
