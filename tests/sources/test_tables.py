from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import InputError
from pipeline.core.text import plain_doi, reference_keys
from pipeline.corpus.reader import Corpus
from pipeline.sources.collection import Bibtex, Tables
from pipeline.sources.lists import Cells
from pipeline.sources.registry import open_release
from tests.releases import id_key, read, write_lines
from tests.sources.test_hostile import Build


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pandas.csv", 'paper_id,title,references\n1,"An ""odd"", title\nof two lines",\n2,B,"[\'1\', \'x/1\']"\n'),
        ("spark.csv", 'paper_id,title,references\n1,"An \\"odd\\", title\nof two lines",""\n2,B,"1;x/1"\n'),
        ("excel.csv", 'paper_id;title;references\r\n1;"An ""odd"", title\nof two lines";\r\n2;B;"1;x/1"\r\n'),
        ("quoted.tsv", 'paper_id\ttitle\treferences\n1\t"An ""odd"", title\nof two lines"\t\n2\tB\t["1", "x/1"]\n'),
        ("plain.tsv", 'paper_id\ttitle\treferences\n1\tAn "odd", title of two lines\n2\tB\t1;x/1\n'),
    ],
)
def test_a_table_of_any_dialect(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, newline="")
    rows, total = read(Tables(tmp_path))
    titles = [(row["paper_id"], row["title"]) for row in rows]
    assert titles == [("1", 'An "odd", title of two lines'), ("2", "B")]
    assert rows[1]["outbound"] == sorted([1, id_key("x/1")])
    assert total.dropped == {}


LATE = {
    "quoted.tsv": ("\t", lambda text: '"' + text.replace('"', '""') + '"', 'On ""late"" quotes'.replace('""', '"')),
    "escaped.csv": (",", lambda text: '"' + text.replace('"', '\\"') + '"', 'On "late", $\\alpha$'),
}


@pytest.mark.parametrize("name", LATE)
def test_what_comes_late_decides_as_what_comes_first(tmp_path: Path, name: str) -> None:
    """Quotes after 128 KiB, with a line end in one; backslashes of formulas before escaped quotes stay."""
    separator, quoted, title = LATE[name]
    plain = [(f"p{n}", r"On $\alpha$ of x", "word " * 30) for n in range(1_000)]
    late = [("late", quoted(title), quoted("Two\nlines")), ("last", "x", "y")]
    text = "\n".join(separator.join(row) for row in [("paper_id", "title", "abstract"), *plain, *late])
    (tmp_path / name).write_text(text + "\n")
    rows, total = read(Tables(tmp_path))
    found = {row["paper_id"]: (row["title"], row["abstract"]) for row in rows}
    assert len(found) == len(rows) == 1_002
    assert (found["late"], found["p7"][0]) == ((title, "Two lines"), r"On $\alpha$ of x")
    assert total.dropped == {}


def test_quotes_that_are_text_join_no_rows_even_if_the_first_are_pairs(tmp_path: Path) -> None:
    rows = [(f"p{n}", '"A" b' if n == 700 else '"Open' if n in (701, 900) else f'"T{n}"', "x") for n in range(1_500)]
    text = "\n".join("\t".join(row) for row in [("paper_id", "title", "abstract"), *rows])
    (tmp_path / "a.tsv").write_text(text)
    assert len(read(Tables(tmp_path))[0]) == 1_500


def test_an_open_quote_costs_its_row_alone(tmp_path: Path) -> None:
    rows = [f'p{n},"T, ""{n}""\nof two",a' if n != 50 else 'p50,"T,a' for n in range(100)]
    (tmp_path / "a.csv").write_text("\n".join(["paper_id,title,abstract", *rows]) + "\n")
    found, total = read(Tables(tmp_path))
    assert len(found) >= 98
    assert len(found) + sum(total.dropped.values()) >= 100


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("Export of 2020\nby us\n\n# made, by, hand\nid,title,refs\n1,T,2; 3\n2,T,\n3,T,\n", ""),
        ("#id,title,refs\n1,T,2|3\n2,T,\nid,title,refs\n3,T,\n", ""),
        ("1,T,2 3\n2,T,\n3,T,\n", "paper_id=0,title=1,references=2"),
    ],
)
def test_titles_comments_and_no_header(tmp_path: Path, build: Build, text: str, columns: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    artifact = build(open_release("csv", tmp_path, {"columns": columns or "paper_id=id,references=refs"}))
    assert cited(artifact) == {"1": ["2", "3"], "2": [], "3": []}
    assert artifact.manifest.counts["dropped"] == {}


def test_a_table_without_header_is_told_how_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\tA title, with comma\t2019\n2\tB\t2018\n")
    with pytest.raises(InputError, match="first has 1, A title, with comma, 2019.*no header: paper_id=0,title=1"):
        read(Tables(tmp_path))


def test_many_columns_take_no_time(tmp_path: Path) -> None:
    names = ["paper_id", *(f"c{n}" for n in range(20_000))]
    (tmp_path / "a.csv").write_text("\n".join(",".join(row) for row in (names, ["1"] * len(names))))
    start = time.process_time()
    assert len(read(Tables(tmp_path))[0]) == 1
    assert time.process_time() - start < 2


SICI = "10.1002/(SICI)1097-0142(1998)14:1<3::AID-X1>3.0.CO;2-K"
OLD = "10.1577/1548-0000(1981)110<446:E>2.0.CO;2"
SPELLINGS: list[tuple[list[str], str, list[str]]] = [
    (["2101.00001", "2101.00002"], "2101.00001,2101.00002", ["2101.00001", "2101.00002"]),
    (["a", "b"], 'c("a", "b")', ["a", "b"]),
    (["a", "b"], "['a' 'b']", ["a", "b"]),
    (["a", "b"], "['a' ... 'b']", ["a", "b"]),
    (["a", "b"], "{a,b}", ["a", "b"]),
    (["Doe, 2019", "Roe, 2020"], "Doe, 2019; Roe, 2020", ["Doe, 2019", "Roe, 2020"]),
    (["Doe, 2019", "Roe, 2020"], "Doe, 2019", ["Doe, 2019"]),
    ([SICI, OLD], f"{SICI};{OLD}; 10.5555/gone", [SICI, OLD, "10.5555/gone"]),
    (["10.1016/s,1", "10.1016/s,2"], "10.1016/s,1,10.1016/s,2", ["10.1016/s,1", "10.1016/s,2"]),
    (["10.1/a", "omid:br/2"], "doi:10.1/a omid:br/1; omid:br/2 pmid:7", ["10.1/a", "omid:br/2"]),
    (["x"], "smith 2001; 10.9/gone", ["smith 2001", "10.9/gone"]),
]


@pytest.mark.parametrize(("ids", "cell", "items"), SPELLINGS)
def test_lists_are_split_where_items_are_papers(ids: list[str], cell: str, items: list[str]) -> None:
    keys, cells = reference_keys(ids), Cells()
    cells.add(cell)
    split = cells.decide(lambda parts: np.isin(reference_keys(list(parts)), keys))
    assert np.array_equal(reference_keys(split.items(cell)), reference_keys(items))
    assert split.known == sum(item in ids for item in items)


def test_references_that_match_nothing_are_said_with_two_of_them(
    tmp_path: Path, build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("paper_id,title,references\n1,T,\"['a' 'b' ... 'z']\"\n2,T,x;y\n")
    artifact = build(open_release("csv", tmp_path, {}))
    assert (
        "references: none of 5 items is the id or DOI of a paper here, such as 'x' and 'y'" in capsys.readouterr().err
    )
    assert artifact.manifest.counts["noted"]["references cut by NumPy"] == 1


BIBTEX = r"""
@string{acl = "ACL"}
@article{smith19, Title = {A {Title} of \'Etude, {\"U}ber $x_{i}^2$}, year = 2019, month = jan, publisher = acl # "x",
  abstract = "With {\em words} \& more", doi = {10.1/A_{b}}}
@misc{jones, title = "First", title = "Second", crossref = {smith19}, date = {2018-05-01}}
"""


def test_bibtex_is_plain_text_under_its_keys(tmp_path: Path) -> None:
    (tmp_path / "a.bib").write_text(BIBTEX)
    rows, total = read(Bibtex(tmp_path))
    assert [(row["paper_id"], row["title"], row["abstract"], row["year"]) for row in rows] == [
        ("smith19", "A Title of Étude, Über $x_{i}^2$", "With words & more", 2019),
        ("jones", "First", "", 2018),
    ]
    assert (total.read, total.dropped) == (2, {})


PAPERS: list[dict[str, Any]] = [
    {"paper_id": "https://doi.org/10.1/A", "title": "T", "references": ["DOI: 10.2/X", "10.1/a"]},
    {"paper_id": "10.1/B", "title": "T", "references": ["http://dx.doi.org/10.1/A", "7"]},
    {"paper_id": "7", "title": "T", "doi": "10.2/x", "references": ["10.2/X", "10.9/9", "2010.1/x"]},
]


def cited(artifact: Any) -> dict[str, list[str]]:
    corpus = Corpus(artifact)
    rows = np.arange(len(corpus))
    ids = corpus.take(rows, ["paper_id"]).column(0).to_pylist()
    return {ids[row]: [ids[other] for other in corpus.outgoing.of(row).tolist()] for row in rows.tolist()}


def test_dois_join_in_any_spelling(tmp_path: Path, build: Build) -> None:
    write_lines(tmp_path / "a.jsonl", PAPERS)
    artifact = build(open_release("jsonl", tmp_path, {}))
    assert cited(artifact) == {"https://doi.org/10.1/A": ["7"], "10.1/B": ["7", "https://doi.org/10.1/A"], "7": []}
    assert plain_doi("2010.1/x") == plain_doi("arxiv/10.1/x") == plain_doi("10.1") == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "# from\tto\n7\t10.1/B\n7\tHTTPS://doi.org/10.1/a\nx\t7\n7\t\n"),
        ("a.txt", "7 10.1/B\n7 10.1/A\nx 7\n"),
        ("a.jsonl", '{"citing":7,"cited":["10.1/B","10.1/A"]}\n{"citing":"x","cited":7}\n{"citing":"","cited":1}\n'),
        ("a.parquet", ""),
    ],
)
def test_citations_in_a_file_of_their_own(tmp_path: Path, build: Build, name: str, text: str) -> None:
    (tmp_path / "papers").mkdir()
    write_lines(tmp_path / "papers/a.jsonl", PAPERS)
    if name.endswith("parquet"):
        pq.write_table(pa.table({"of": ["7", "7", "x"], "to": ["10.1/B", "10.1/A", "7"]}), tmp_path / name)
    else:
        (tmp_path / name).write_text(text)
    release = open_release("jsonl", tmp_path / "papers", {"citations": str(tmp_path / name)})
    artifact = build(release)
    assert cited(artifact) == {
        "https://doi.org/10.1/A": ["7"],
        "10.1/B": ["7", "https://doi.org/10.1/A"],
        "7": ["10.1/B", "https://doi.org/10.1/A"],
    }
    noted = artifact.manifest.counts["noted"]
    assert noted["citations: dropped, citing_paper_unknown"] == 1
    bad = noted.get("citations: dropped, null_cited_id", 0) + noted.get("citations: dropped, null_citing_id", 0)
    assert bad == (name in ("a.tsv", "a.jsonl"))


def test_citations_without_named_columns_are_refused(tmp_path: Path, build: Build) -> None:
    write_lines(tmp_path / "a.jsonl", PAPERS)
    (tmp_path / "e.json").write_text(json.dumps([{"a": "7", "b": "10.1/B", "weight": 1}]))
    values = {"citations": str(tmp_path / "e.json")}
    with pytest.raises(InputError, match=r"e.json:1 must have two columns, or .* 'cited', got 'a, b, weight'"):
        build(open_release("jsonl", tmp_path / "a.jsonl", values))
    artifact = build(open_release("jsonl", tmp_path / "a.jsonl", {**values, "columns": "citing=a,cited=b"}))
    assert cited(artifact)["7"] == ["10.1/B"]
    (tmp_path / "e.tsv").write_text(f"2019\t10.1/B\t7\n2020\t{SICI}\t7\n")
    values = {"citations": str(tmp_path / "e.tsv"), "columns": "citing=2,cited=1"}
    assert cited(build(open_release("jsonl", tmp_path / "a.jsonl", values)))["7"] == ["10.1/B"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reversed.csv", "Cited_ID,Citing_ID,weight\n2,1,.5\n3,1,.5\n"),
        ("headless.csv", "# of us, in 2020\n1,2\n1,3\n"),
        ("dois.csv", "oci,citing,cited\nx,DOI:10.1/A,10.1/b\ny,https://doi.org/10.1/a,10.1/C\n"),
        ("by-paper.json", '{"1": ["2", 3, null], "2": []}'),
        ("pairs.json", '{"citing": ["1", 1], "cited": ["2", "3"]}'),
        ("by-column.json", '{"citing": {"0": 1, "1": 1}, "cited": {"0": 2, "1": 3}}'),
        ("open.csv", "oci,citing,cited\na,omid:br/1 doi:10.1/A,doi:10.1/b omid:br/2\nb,1,doi:10.1/C pmid:4\n"),
    ],
)
def test_edge_lists_as_people_have_them(tmp_path: Path, build: Build, name: str, text: str) -> None:
    papers = [{"paper_id": number, "doi": f"https://doi.org/10.1/{letter}"} for number, letter in zip("123", "ABC")]  # noqa: B905
    write_lines(tmp_path / "papers/a.jsonl", [{**paper, "title": "T"} for paper in papers])
    (tmp_path / name).write_text(text)
    artifact = build(open_release("jsonl", tmp_path / "papers", {"citations": str(tmp_path / name)}))
    assert cited(artifact) == {"1": ["2", "3"], "2": [], "3": []}
    assert Corpus(artifact).attributes["n_inbound"].tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.dat", "2 1 3\n1 0\n0\n2 0 1\n", "a.dat:1 must have two columns, .* got '2 1 3'.*citing=0,cited=1"),
        ("a.csv", "1,2,2019\n1,3,2020\n", "got '1 2 2019'"),
        ("a.json", '{"nodes": [{"id": 1}], "links": [{"source": 1, "target": 2}]}', "must hold ids, got objects"),
        ("a.json", '{"citing": ["1"], "cited": ["2", "3"]}', "as many citing as cited ids, got 1 and 2"),
        ("a.txt", "@article{a,\n title={A}\n}\n", "is BibTeX, not a table. Convert it to table"),
    ],
)
def test_a_file_that_is_no_pairs_is_refused(tmp_path: Path, build: Build, name: str, text: str, said: str) -> None:
    write_lines(tmp_path / "papers/a.jsonl", PAPERS)
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said):
        build(open_release("jsonl", tmp_path / "papers", {"citations": str(tmp_path / name)}))


def test_citations_of_other_papers_are_said(tmp_path: Path, build: Build, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(tmp_path / "papers/a.jsonl", PAPERS)
    (tmp_path / "e.csv").write_text("citing,cited\nx,y\nz,y\n")
    build(open_release("jsonl", tmp_path / "papers", {"citations": str(tmp_path / "e.csv")}))
    assert "only 0 of 2 citations of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "references"),
    [
        ("a.csv", 'sep=;\npaper_id;title;references;abstract\n1.0;T;"2, 3";NaN\n2;T;;NULL\n3;T;;\n', ["2", "3"]),
        ("a.csv", "# made by us\n\npaper_id,title,references\n1,T,{2|3}\n2,T,NA\n3,T,\n", ["2", "3"]),
        ("a.csv", 'paper_id, title, references\n1, "T, U", "(2.0, 3)"\n2, T,\n3, T,\n', ["2", "3"]),
        ("a.csv", "paper_id\treferences\ttitle\n1\tarray(['2', nan, '3'])\tT\n2\t\tT\n3\t\tT\n", ["2", "3"]),
    ],
)
def test_cells_as_tools_write_them(
    tmp_path: Path, build: Build, name: str, content: str, references: list[str]
) -> None:
    (tmp_path / name).write_text(content)
    artifact = build(open_release("csv", tmp_path, {}))
    assert cited(artifact) == {"1": references, "2": [], "3": []}
    assert artifact.manifest.counts["noted"] == {}
    assert not any(Corpus(artifact).attributes["abstract_chars"])


def test_few_found_references_are_said(tmp_path: Path, build: Build, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        {"paper_id": f"p{n}", "title": "T", "references": [f"q{n}", f"p{n - 1}" if n < 2 else "q"]} for n in range(11)
    ]
    build(open_release("jsonl", write_lines(tmp_path / "a.jsonl", records), {}))
    said = capsys.readouterr().err
    assert "only 1 of 22 references are papers of this corpus: they must be ids like p0, or DOIs" in said
    build(open_release("jsonl", write_lines(tmp_path / "b.jsonl", records[:10]), {}))
    assert "only" not in capsys.readouterr().err


def test_markup_is_stripped_before_anything_is_measured(tmp_path: Path, build: Build) -> None:
    write_lines(
        tmp_path / "a.jsonl", [{"paper_id": 1, "title": "CO<sub>2</sub>", "abstract": "&lt;p&gt;A\\'e&lt;/p&gt;"}]
    )
    kept, also_kept, stripped = (
        open_release("jsonl", tmp_path, {"markup": markup}) for markup in ("keep", None, "strip")
    )
    artifacts = [build(release) for release in (kept, also_kept, stripped)]
    assert artifacts[0].id == artifacts[1].id != artifacts[2].id
    corpus = Corpus(artifacts[2])
    assert corpus.take(np.arange(1), ["title", "abstract"]).to_pylist() == [{"title": "CO2", "abstract": "Aé"}]
    assert (corpus.attributes["title_chars"].item(), corpus.attributes["abstract_chars"].item()) == (3, 2)
    with pytest.raises(InputError, match="--markup must be keep or strip, got 'html'"):
        open_release("jsonl", tmp_path, {"markup": "html"})
