"""What is refused: one line with the value and the remedy, exit code 2, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run import flags, mdcr, one_line_error
from tests.faults.workspace import leftovers

POOL = "--size 900 --queries 20"

OF_POOLS = [
    ("pool --field Medcine", "there is no field 'Medcine'. Did you mean 'Medicine'?"),
    ("pool --size many", "--size must be a whole number of at least 1, such as 200k, or all, got 'many'"),
    ("pool --split dev", "--split must be test or validation, got 'dev'"),
    ("pool --corpus tnyi", "there is no corpus 'tnyi'"),
    ("pool --corpus demo", "Run mdcr demo, which makes it"),
    ("pool --citation-direction outbond", "Did you mean 'outbound'?"),
    ("pool --exclude nowhere.txt", "the exclusion list nowhere.txt cannot be read"),
    ("tune --year 2019 --size all --queries all", "the test set takes all queries"),
]

OF_WORDS = [
    ("eval --model bm25 --device tpu", "there is no device 'tpu'"),
    ("compare bm25 lsa --most 0", "--most must be a whole number from 1, got '0'"),
    ("pool --feild Art", "mdcr pool has no option --feild. Did you mean '--field'?"),
    ("pool Art", "mdcr pool has no use for 'Art'"),
    ("evla", "there is no command 'evla'. Did you mean 'eval'?"),
    ("export", "--what must be given. Choose pool, run"),
    ("show pools --what corpora", "--what is given twice"),
    ("fetch s2orc", "--source must be s2ag, got 's2orc'"),
    ("submit", "--stage must be given"),
    ("submit embed", "the following arguments are required: --model. See mdcr embed --help"),
    ("submit embed --model lsa --set epochs=2", "mdcr embed has no option --set"),
    ("embed --model lsa --depth 10", "mdcr embed has no option --depth. "),
]

OF_SYSTEMS = [
    ("eval --model spectre", "there is no model 'spectre'. Did you mean 'specter'"),
    ("eval --model bm25 --precision bf16", "--precision=bf16 must go with an encoder"),
    ("eval --model lsa --measures mapp,ndcgg", "mapp"),
    (f"eval --model lsa --measures map,recall@1000 {POOL}", "recall@1000 needs --depth=1000, got 500"),
    (f"eval --model lsa --bm25-engine lucene {POOL}", "--bm25-engine lucene must go with bm25"),
    (f"eval --model bm25 --precision fp16 {POOL}", "--precision=fp16 must go with an encoder that computes"),
    (f"eval --model lsa --engine fais {POOL}", "there is no search engine 'fais'"),
    (f"eval --model lsa --engine faiss:HNSWW32 {POOL}", "could not parse index string HNSWW32"),
    ("eval --model lsa --memory lots", "memory 'lots' is not an amount"),
    ("eval --model lsa --ray-address a:1", "--ray-address must go with --engine=ray"),
    (f"score --run nowhere.trec {POOL}", "the run nowhere.trec cannot be read (No such file or directory)"),
    ("eval --model lsa --on sge", "--on must be slurm, got 'sge'. Choose one of: slurm"),
    ("eval --model lsa --nodes 2", "--nodes must go with --on=slurm"),
    ("eval --model lsa --on slurm --engine=ray", "--on=slurm cannot be combined with --engine=ray"),
]

OF_CORPORA = [
    ("corpus --source s2orc", "there is no source 's2orc'. Did you mean 's2orc2020'?"),
    ("corpus --source s2orc2020", "must have the folder of the release"),
    ("corpus --source s2orc2020 --input /nonexistent", "the input folder /nonexistent does not exist"),
    ("corpus --source s2ag --input . --fields-from mag", "no fields of study from 'mag'"),
    ("corpus --source jsonl --input . --columns id=key", "--columns maps 'id', which is not a column"),
    ("corpus --source synthetic --corpus a/b", "'a/b' is not a name for a corpus"),
    ("corpus --source synthetic --input .", "source synthetic takes no --input"),
    ("fetch s2ag --api-key secret", "--api-key would show the key to everyone"),
]

OF_TABLES = [
    ("show table", "nothing that was scored"),
    ("show corpora --depth 10", "mdcr show corpora takes no --depth. It goes with show table"),
    ("show --format csv --json", "--format cannot be combined with --json"),
    ("report --format terminal", "--format of files must be markdown, csv, latex, figures, page, got 'terminal'"),
    (
        "export pool --format triec",
        "--format must be one of beir, trec, got 'triec'. Did you mean 'trec'",
    ),
    ("export scores --engine faiss:HNSW32", "mdcr export scores takes no --engine. It goes with export pool or run"),
]


@pytest.mark.parametrize(("words", "expected"), [*OF_POOLS, *OF_WORDS, *OF_SYSTEMS, *OF_CORPORA, *OF_TABLES])
def test_bad_input_is_one_line_with_the_remedy(
    root: Path, monkeypatch: pytest.MonkeyPatch, words: str, expected: str
) -> None:
    assert expected in one_line_error(mdcr(root, *flags(words)))
    assert not leftovers(root)
    made = {path.relative_to(root).parts[:2] for path in root.rglob("manifest.json")}
    assert {place for place in made if place[1] != "pools"} == {
        ("corpora", next((root / "corpora").glob("tiny-*")).name)
    }


def test_a_model_folder_without_tokenizer(root: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert "tokenizer" in one_line_error(mdcr(root, "eval", "--model", str(tmp_path)))
