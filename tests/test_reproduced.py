"""Each command of the papers' list on small stand-ins: what its rows name exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pipeline.studies.scirepeval.tasks import FORMATS
from tests.cli.run import mdcr
from tests.encode.tiny import save_bert
from tests.releases import write_lines
from tests.studies.facets import collection
from tests.studies.facets.conftest import few_random_orders as few_random_orders
from tests.studies.mdcr.conftest import random_lists, write_split
from tests.studies.scirepeval import published
from tests.test_papers import PAPERS
from tests.train import test_multi_format as multi_format

TWO = "lsa:dimension=8,lsa:dimension=9"
_SCIREPEVAL = "study scirepeval --input {data}/scirepeval --set resamples=10"
_LARGE = (
    "--model 'bm25:k1=0.9,b=0.4,lsa:dimension=8' --set baseline=bm25 --set queries=8 --set samples=1 --set sizes=300"
)
KINDS = ("scidocs_mag", "cite_count", "scidocs_cite", "paper_reviewer_matching", "trec_covid")
"""A task of each format, without few-shot rows, which take long."""
STAND_INS = {
    "mdcr": {
        "": "corpus --source synthetic --papers 2k --corpus s2orc",
        "A": f"study large_scale --recipe dataset_level {_LARGE}",
        "B": f"study large_scale --recipe field_level {_LARGE} --set fields=Medicine,Physics --set own={{}}",
        "C": "study mdcr_eval --input {data}/mdcr --model bm25,lsa:dimension=8",
        "D": f"{_SCIREPEVAL} --set 'tasks=[\"scidocs_cite\"]' --model {TWO}",
    },
    "neighbours": {
        "A": "study neighbours --recipe neighbours_paper --input {data}/title-abstract --corpus iclr,acl-anthology "
        '--set papers=5 --set titles=5 --set \'classes=["T_ARot","T_ADelNum","TDelNN_A","T_A_WS"]\' --model ' + TWO,
        "B": "show corpora",
    },
    "csfcube": {
        "A": "study facets --input {data}/csfcube --model tfidf,lsa:dimension=8",
        "B": "corpus --source synthetic --papers 2k --corpus s2orc",
        "C": "study facets --recipe facets_paper --input {data}/csfcube --model word2vec:corpus=s2orc,dimension=8",
        "D": "train specter_id --corpus s2orc --set base={data}/bert --set max_length=32 --set epochs=1 "
        "--set 'draw={queries=20}' --set precision=float32",
        "E": "study facets --input {data}/csfcube --set systems= --set whole=SPECTER-ID={data}/bert",
    },
}
_CODES = ",".join(f'{form}="lsa:dimension=8,seed={n}"' for n, form in enumerate((*FORMATS, "query"), 1))
_CONFUSED = f"{_SCIREPEVAL} --model mine --set confusion=mine --set 'formats={{mine={{{_CODES}}}}}'"
_GRID = shlex.join(multi_format.settings(architectures=["cls", "ctrl"]))
_TRAINED = (
    f"study multi_format --recipe multi_format_paper --input {{data}}/scirepeval --model tiny={{data}}/bert {_GRID}"
)
STAND_INS["scirepeval"] = {
    "A": "study scirepeval --input {data}/scirepeval --list",
    "B": f"{_SCIREPEVAL} --model {TWO},lsa:dimension=10",
    "C": _CONFUSED,
    "D": "study mdcr_eval --input {data}/mdcr --model bm25,lsa:dimension=8",
    "E": f"{_SCIREPEVAL} --model lsa:dimension=8",
    "F": f"{_SCIREPEVAL} --model {TWO} --set 'tasks=[\"scidocs_cite\"]'",
    "G": f"{_TRAINED} --set benchmark={{data}}/mdcr",
}
STAND_INS["scirepeval2022"] = {
    "A": "study scirepeval --input {data}/scirepeval --list",
    "B": f"{_SCIREPEVAL} --set edition=25 --model {TWO},lsa:dimension=10",
    "C": _CONFUSED,
    "D": f"{_SCIREPEVAL} --set edition=25 --model {TWO} --set 'tasks=[\"scidocs_cite\"]'",
    "E": f"{_TRAINED} --set edition=25",
}
"""Each command with small data, few queries, and encoders that are fitted or trained here."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a stand-in of each data set and encoder."""
    data = tmp_path_factory.mktemp("data")
    multi_format.training_sets(published.write(data / "scirepeval", KINDS))
    collection.write(data / "csfcube")
    write_split(data / "mdcr", "test", random_lists(1))
    save_bert(data / "bert", positions=64)
    for name in ("iclr", "acl-anthology"):
        abstract = "We train the model {}. It is a good one. The end."
        rows = [{"id": str(n), "title": f"Deep models of text {n}", "abstract": abstract.format(n)} for n in range(12)]
        write_lines(data / "title-abstract" / f"{name}.jsonl.gz", rows)
    return data


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduced")


def outputs(paper: str, letter: str) -> set[str]:
    """Return the outputs of a command that rows name, in cells such as "A; B: `tasks`, `formats`"."""
    cells = (part.partition(":") for row in PAPERS[paper].rows for part in row.outputs.split(";"))
    named = [listed for letters, _, listed in cells if letter and letter in letters]
    return {output for listed in named for output in re.findall("`([^`]+)`", listed)}


def exists(folder: Path, output: str) -> bool:
    """Return whether a report has an output: a table, a figure, a file, or a part of its page."""
    name = re.sub("-(scibert|specter)-distance-cosine$", "-*", output)
    files = [path for ending in ("md", "svg", "csv") for path in folder.glob(f"{name}.{ending}")]
    return bool(files) or output in (folder / "index.html").read_text()


@pytest.mark.parametrize("paper", STAND_INS)
def test_every_output_exists(root: Path, data: Path, paper: str) -> None:
    assert set(STAND_INS) == set(PAPERS)
    assert set(STAND_INS[paper]) == {command.letter for command in PAPERS[paper].commands}
    for letter, text in STAND_INS[paper].items():
        report = root / "reports" / f"{paper}-{letter}"
        words = [word.replace("{data}", str(data)) for word in shlex.split(text)]
        written = words[0] == "study" and "--list" not in words
        done = mdcr(root, *words, *(["--output", str(report)] if written else []))
        assert done.returncode == 0, (text, done.stderr[-2000:])
        assert written or done.stdout
        assert not [output for output in sorted(outputs(paper, letter)) if not exists(report, output)], letter
