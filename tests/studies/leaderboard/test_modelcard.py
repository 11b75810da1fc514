"""Results in a model card: only the block ``model-index`` changes, and only in the folder of that encoder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.core.errors import InputError
from pipeline.studies.leaderboard.modelcard import index_of, push, replaced


def card_of(value: float, name: str = "mine") -> str:
    """A card of two results."""
    results = [
        {
            "task": {"type": "Retrieval"},
            "dataset": {"name": dataset, "type": "x"},
            "metrics": [{"type": "map", "value": value}],
        }
        for dataset in ("first: 1K, é", "second")
    ]
    return f"---\n{index_of(name, results)}---\n\n# {name}\n"


def results_of(text: str) -> dict[str, list[tuple[str, Any]]]:
    """The dataset and value of each result, by name of the entry."""
    matter = yaml.load(text.removeprefix("\ufeff").lstrip().split("---")[1], yaml.BaseLoader)  # noqa: S506
    return {
        entry["name"]: [(result["dataset"]["name"], result["metrics"][0]["value"]) for result in entry["results"]]
        for entry in matter["model-index"]
    }


OTHERS = (
    "model-index:\n- name: theirs   # by hand\n  results:\n  - task: {type: STS}\n    dataset: {name: other, type: o}\n"
    "    metrics:\n    - {type: spearman, value: 1.10}\n"
)
SCALAR = OTHERS.replace("{type: STS}", "{type: STS, text: 'a'}") + "    source: |\n      a: b\n\n      c\n"
MATTERS = {
    "no block": ("language: no\nversion: 1.10 # a comment\ndate: 2024-01-01\n", "", ""),
    "block in the middle": ("language: no\n", OTHERS, "# what follows\nversion: 1.10\n"),
    "block last": ("version: 1.10\n", OTHERS, "# the end\n"),
    "block first, null": ("", "model-index:\n", "language: [no, on]\n"),
    "null in a word": ("language: y\n", "model-index: null # nothing yet\n", "tags: !ours [a]\n"),
    "flow": ("on: off\n", "model-index: []\n", "quote: 'it''s'\n"),
    "flow over lines": ("a: 010\n", "model-index: [\n  {name: theirs, results: []}\n] # ends\n", "b: 1_000\n"),
    "quoted key": ("a: b\n", OTHERS.replace("model-index", '"model-index"'), "text: |\n  a: b\n\n  ---- x\n"),
    "indented": ("  language: no\n  version: 1.10\n", "", ""),
    "indented block": ("  language: no\n  ", OTHERS.replace("\n", "\n  ").rstrip(" "), "  b: 1.10\n"),
    "block scalar at its end": ("a: b\n", SCALAR, "b: |\n  text\n"),
    "comments alone": ("# nothing\n", "", ""),
    "empty": ("", "", ""),
}
"""What stands before, in and after the block."""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff", "\n"])
@pytest.mark.parametrize(("before", "block", "after"), MATTERS.values(), ids=MATTERS)
def test_the_rest_of_a_card_stays_as_it_is_written(
    before: str, block: str, after: str, mark: str, newline: str
) -> None:
    start, end = f"{mark}---\n{before}", f"{after}---\n\n# Text\n\nmodel-index: in the text\n\n---\n"
    once = replaced((start + block + end).replace("\n", newline), card_of(1.25), "README.md")
    assert once.startswith(start.replace("\n", newline))
    assert once.endswith(newline + end.replace("\n", newline))
    assert "\n" not in once.replace(newline, "")
    theirs = {"theirs": [("other", "1.10")] if "spearman" in block else []} if "theirs" in block else {}
    assert results_of(once) == theirs | {"mine": [("first: 1K, é", "1.25"), ("second", "1.25")]}
    again = replaced(once, card_of(2.5), "README.md")
    assert again == once.replace("value: 1.25", "value: 2.5")


def test_a_card_without_front_matter_gets_one() -> None:
    for text in ("# Text\r\n", "\ufeff# Text\r\n"):
        once = replaced(text, card_of(1), "README.md")
        assert once.startswith(text[:-8] + "---\r\nmodel-index:\r\n")
        assert once.endswith("---\r\n# Text\r\n")


def test_results_of_the_same_name_that_others_wrote_stay() -> None:
    text = f"---\n{OTHERS.replace('theirs', 'mine')}---\n"
    for value in (1, 2):
        text = replaced(text, card_of(value), "README.md")
    assert results_of(text) == {"mine": [("other", "1.10"), ("first: 1K, é", "2"), ("second", "2")]}


@pytest.mark.parametrize(
    ("matter", "named"),
    [
        ("a: [1\n", "must be YAML"),
        ("a: b: c\n", "must be YAML"),
        ("a:\tb\n\t- c\n", "must be YAML"),
        ("a: \x07\n", "must be YAML"),
        ("a: " + "[" * 5000 + "\n", "must be YAML"),
        ("model-index: &a [{name: x, results: *a}]\n", "must be YAML"),
        ("a: *b\n", "must be YAML"),
        ("- a\n", "must be keys and values"),
        ("text\n", "must be keys and values"),
        ("{a: b}\n", "must be keys and values"),
        ("model-index: 5\n", "must be a list of names and results"),
        ("model-index:\n- name: a\n", "must be a list of names and results"),
        ("model-index:\n- name: a\n  results: few\n", "must be a list of names and results"),
        (f"{OTHERS}{OTHERS}", "must have model-index once"),
    ],
)
def test_front_matter_that_cannot_be_read_is_refused(matter: str, named: str, tmp_path: Path) -> None:
    text = f"---\n{matter}---\nText\n"
    (tmp_path / "README.md").write_text(text)
    (tmp_path / "card.md").write_text(card_of(1))
    with pytest.raises(InputError, match=named):
        push(tmp_path / "card.md", str(tmp_path), [])
    assert (tmp_path / "README.md").read_text() == text


def test_a_file_that_is_not_utf_8_or_has_no_end_of_its_front_matter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "card.md").write_text(card_of(1))
    for content, named in ((b"---\nname: caf\xe9\n---\n", "must be UTF-8"), (b"---\na: b\n", "must end with ---")):
        (tmp_path / "README.md").write_bytes(content)
        with pytest.raises(InputError, match=named):
            push(tmp_path / "card.md", str(tmp_path), [])
        assert (tmp_path / "README.md").read_bytes() == content


def test_a_card_goes_only_into_the_folder_of_its_encoder(tmp_path: Path) -> None:
    """Weights are compared by the files of the formats that both folders have."""

    def folder(name: str, **contents: str) -> Path:
        made = tmp_path / name
        for file, content in contents.items():
            path = made / file.replace("__", "/").replace("_", ".", 1)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return made

    (tmp_path / "card.md").write_text(card_of(1))
    own = folder("own", model_safetensors="w", head__model_safetensors="h")
    same = folder("same", model_safetensors="w", head__model_safetensors="h", model_onnx="o")
    assert push(tmp_path / "card.md", str(same), [own]) == str(same / "README.md")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert push(tmp_path / "card.md", str(empty), []) == str(empty / "README.md")
    others = {
        "other": folder("other", model_safetensors="x", head__model_safetensors="h"),
        "without its head": folder("headless", model_safetensors="w"),
        "other format": folder("format", model_bin="w"),
    }
    for name, other in others.items():
        with pytest.raises(InputError, match="must hold the weights of the encoder"):
            push(tmp_path / "card.md", str(other), [own])
        assert not (other / "README.md").exists(), name
    with pytest.raises(InputError, match="must hold the weights of the encoder"):
        push(tmp_path / "card.md", str(own), [])  # a fusion has no weights


def test_a_repository_with_other_weights_is_refused_before_its_card_is_read(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "model.safetensors").write_bytes(b"weights")
    listed = [{"rfilename": "model.safetensors", "size": 7, "lfs": {"sha256": "0" * 64, "size": 7, "pointerSize": 9}}]

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path.startswith("/api/models/lab/theirs") else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"id": "lab/theirs", "siblings": listed}).encode())

    server = HTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    program = (
        "import sys, pathlib; from pipeline.studies.leaderboard.modelcard import push\n"
        "push(pathlib.Path('card.md'), 'lab/theirs', [pathlib.Path(sys.argv[1])])"
    )
    env = os.environ | {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HUB_OFFLINE": "0"}
    done = subprocess.run([sys.executable, "-c", program, own], env=env, capture_output=True, text=True, check=False)
    server.shutdown()
    assert "lab/theirs must hold the weights of the encoder of the card, got others" in done.stderr
