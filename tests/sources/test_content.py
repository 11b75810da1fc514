from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.core.errors import CorruptError, InputError
from pipeline.sources import content
from pipeline.sources.collection import JsonLines
from pipeline.sources.content import read_json
from pipeline.sources.registry import open_release
from tests.faults.hostile import SOURCES
from tests.faults.hostile_files import READ
from tests.releases import read


@pytest.mark.parametrize("name", READ)
def test_the_same_papers_in_other_content(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "BLOCK_BYTES", 5)
    monkeypatch.setattr(content, "_HEAD_BYTES", 60)
    (tmp_path / name).write_bytes(READ[name])
    for release in (JsonLines(tmp_path), JsonLines(tmp_path / name)):
        rows, _ = read(release)
        assert [(row["paper_id"], row["title"], row["outbound"]) for row in rows] == [("1", "É", []), ("2", "", [1])]


def test_a_list_is_split_wherever_blocks_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [{"a": "é\n]"}, [{"b": [1, {"c": "{"}]}, None], 12, {"data": 1, "x": 2}, {"d": 1e5}]
    (tmp_path / "a").write_text(json.dumps(values, indent=1))
    expected = [values[0], *values[1], *values[2:]]  # type: ignore[misc]
    for size in range(1, 60):
        monkeypatch.setattr(content, "BLOCK_BYTES", size)
        found = list(read_json(tmp_path / "a"))
        assert [json.loads(text or b"") for _, text in found] == expected
        assert [line for line, _ in found] == [2, 6, 14, 16, 17, 21]


def test_a_list_that_breaks_off_and_a_value_too_long_for_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text('[{"paper_id": 1},\n{"paper_id": 2},\n{"paper')
    with pytest.raises(CorruptError, match=r"a.json:3 is not complete JSON"):
        read(JsonLines(tmp_path))
    monkeypatch.setattr(content, "MAX_LINE", 1_000)
    monkeypatch.setattr(content, "BLOCK_BYTES", 100)
    (tmp_path / "a.json").write_text(f'[{{"paper_id": "{"x" * 9_000}"}}]')
    with pytest.raises(CorruptError, match="a.json:1 is not complete JSON"):
        read(JsonLines(tmp_path))


@pytest.mark.parametrize("source", ["s2orc2020", "openalex", "jsonl"])
def test_one_file_is_read_as_a_folder_with_it(tmp_path: Path, source: str) -> None:
    ((name, data),) = SOURCES[source][0](b"").items()
    for folder in (tmp_path / "one", tmp_path / "other"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(data)
    (tmp_path / "one" / name).rename(renamed := tmp_path / "one" / f"any{Path(name).suffix}")
    expected, _ = read(open_release(source, tmp_path / "other", {}))
    assert read(open_release(source, renamed, {}))[0] == expected
    assert len(expected) == 2


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"\xef\xbb\xbfTY  - JOUR\r\nTI  - A\r\n", "RIS"),
        (b"PMID- 1\nOWN - NLM\n", "PubMed"),
        (b"FN Clarivate\r\nVR 1.0\r\n", "Web of Science"),
        (b"629814\n#*A title, long\n#@A. Doe\n", "AMiner"),
        (b'<collection id="a">\n <volume>\n', "XML"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "Excel"),
    ],
)
def test_exports_of_other_tools_are_refused_by_name(tmp_path: Path, text: bytes, kind: str) -> None:
    (tmp_path / "a").write_bytes(text)
    for source in ("jsonl", "csv", "bibtex"):
        with pytest.raises(InputError, match=f"a is .*{kind}"):
            read(open_release(source, tmp_path / "a", {}))
