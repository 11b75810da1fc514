"""S2AG: its three datasets are read, and a release is fetched from a server that misbehaves."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.errors import CorruptError, InputError, StageError
from pipeline.core.fields import FIELD_BIT
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import doi_key
from pipeline.sources.fetch import Catalogue, catalogue, fetch_release
from pipeline.sources.s2ag import S2ag
from tests.releases import gathered, s2ag_abstract, s2ag_citation, s2ag_paper, write_lines, write_s2ag
from tests.sources.server import KEY, Datasets, answering, send, send_json, serving

PAPERS = "20260917_1_papers.gz"


def read(release: S2ag, dataset: str) -> list[Any]:
    return [b for part in release.parts() if part.startswith(dataset) for b in release.read(part)]


def release(folder: Path, *records: dict[str, Any] | bytes, **settings: Any) -> S2ag:
    return S2ag(write_s2ag(folder, papers=records, abstracts=[], citations=[]), **settings)


def mask(names: set[str]) -> int:
    return sum(1 << FIELD_BIT[name] for name in names)


def test_titles_years_dois_and_ids(tmp_path: Path) -> None:
    papers = [
        s2ag_paper(7, title=" Two\u00a0 words ", year=1999, externalids={"DOI": "10.1/AbC", "MAG": "5"}),
        s2ag_paper("8", title=None, year=None, externalids=None),
        s2ag_paper(0, year=2999),
    ]
    rows, total = gathered(read(release(tmp_path, *papers), "papers"))
    assert [tuple(row[name] for name in ("paper_id", "title", "year", "doi_key")) for row in rows] == [
        ("7", "Two words", 1999, doi_key("10.1/abc")),
        ("8", "", NO_YEAR, 0),
        ("0", "Title of 0", NO_YEAR, 0),
    ]
    assert total.noted == {"impossible_year": 1}


@pytest.mark.parametrize(
    ("source", "fields", "unknown"),
    [
        ("s2-fos-model", {"Computer Science"}, {"unknown_field: Law": 1}),
        ("external", {"Art"}, {}),
        ("any", {"Computer Science", "Art", "Physics"}, {"unknown_field: Law": 1}),
    ],
)
def test_fields_of_the_named_source_alone_count(
    tmp_path: Path, source: str, fields: set[str], unknown: dict[str, int]
) -> None:
    pairs = [("Computer science", "s2-fos-model"), ("Law", "s2-fos-model"), ("Art", "external"), ("Physics", None)]
    listed = [{"category": category, "source": of} for category, of in [*pairs, (None, source)]]
    paper = s2ag_paper(1, s2fieldsofstudy=listed)
    rows, total = gathered(read(release(tmp_path, paper, fields_from=source), "papers"))
    assert rows[0]["fields"] == mask(fields)
    assert total.noted == unknown


def test_abstracts_and_citations(tmp_path: Path) -> None:
    folder = write_s2ag(
        tmp_path,
        papers=[],
        abstracts=[s2ag_abstract(1, " Text  of one "), s2ag_abstract("2", " \t"), s2ag_abstract(3, None)],
        citations=[s2ag_citation("1", 2), s2ag_citation(None, "2"), s2ag_citation("1", None), s2ag_citation("x", "1")],
    )
    (abstracts,) = read(S2ag(folder), "abstracts")
    assert [column.tolist() for column in abstracts.columns.values()] == [[1], ["Text of one"]]
    assert (abstracts.read, abstracts.dropped) == (3, {"withheld": 2})
    (citations,) = read(S2ag(folder), "citations")
    assert (citations.kind, citations.columns["cited"].tolist()) == ("citations", [2, 1])
    assert (citations.read, citations.dropped) == (4, {"null_citing_id": 1, "null_cited_id": 1})


def test_citations_with_other_keys_are_refused_by_name(tmp_path: Path) -> None:
    folder = write_s2ag(tmp_path, papers=[], abstracts=[], citations=[{"citing": 1, "cited": 2}])
    with pytest.raises(
        InputError, match="has a citing and a cited paper: the first has citing, cited, and read are cit"
    ):
        read(S2ag(folder), "citations")


def test_what_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no S2AG papers"):
        S2ag(tmp_path).parts()
    write_lines(tmp_path / "papers-sample.jsonl.gz", [s2ag_paper(1)])
    write_lines(tmp_path / "abstracts-sample.jsonl", [s2ag_abstract(1, "x")])
    with pytest.raises(InputError, match="holds no S2AG citations"):
        S2ag(tmp_path).identity()
    path = write_lines(tmp_path / "citations-sample.jsonl.gz", [s2ag_citation(n, n + 1) for n in range(5_000)])
    path.write_bytes(path.read_bytes()[:-2_000])
    with pytest.raises(CorruptError, match=r"citations-sample\.jsonl\.gz is a truncated gzip file"):
        read(S2ag(tmp_path), "citations")
    with pytest.raises(InputError, match="no fields of study from 'mag'.*external"):
        S2ag(tmp_path, fields_from="mag")
    assert S2ag(tmp_path).identity() != S2ag(tmp_path, fields_from="any").identity()


@pytest.fixture
def datasets() -> Iterator[Datasets]:
    datasets = Datasets()
    for release in ("2026-03-10", "2026-09-17"):
        datasets.releases[release] = {
            name: {f"20260917_{n}_{name}.gz": gzip.compress(os.urandom(60_000)) for n in range(3)}
            for name in ("papers", "abstracts", "citations", "tldrs")
        }
    with serving(datasets):
        yield datasets


def listed(server: Datasets, release: str = "latest", **options: Any) -> Catalogue:
    return catalogue(release, **{"api_key": KEY, "endpoint": f"{server.address}/datasets/v1", **options})


def fetch(datasets: Datasets, folder: Path, release: str = "2026-09-17") -> dict[str, Any]:
    """Fetch a release, check that every byte is there and nothing else, and return what was recorded."""
    record = fetch_release(listed(datasets, release), folder, connections=1)
    for dataset in ("papers", "abstracts", "citations"):
        for name, content in datasets.releases[release][dataset].items():
            assert (folder / dataset / name).read_bytes() == content
    assert not list(folder.rglob(".*"))
    return record


def test_a_release_is_fetched_checked_and_recorded(datasets: Datasets, tmp_path: Path) -> None:
    record = fetch(datasets, tmp_path)
    assert len(record["files"]) == 9
    assert json.loads((tmp_path / "release.json").read_text()) == record
    assert listed(datasets).name == record["release"] == "s2ag-2026-09-17", "the latest"
    assert fetch(datasets, tmp_path) == record
    assert {count for path, count in datasets.requests.items() if path.startswith("/storage/")} == {1}
    assert datasets.keys == {("api", KEY), ("storage", None)}, "the key is for the API alone"
    with pytest.raises(InputError, match=r"must be empty or have s2ag-2026-03-10, got s2ag-2026-09-17"):
        fetch(datasets, tmp_path, "2026-03-10")


@pytest.mark.parametrize(
    "trouble",
    [
        {"busy": 3},
        {"break_after": {PAPERS: [20_000, 0]}},
        {"break_after": {PAPERS: [30_000]}, "changes": True},
        {"wrong": Counter({PAPERS: 1})},
        {"pages": Counter({PAPERS: 1})},
    ],
    ids=["busy API", "broken", "broken and replaced", "wrong bytes", "a page of errors"],
)
def test_a_server_that_recovers(datasets: Datasets, tmp_path: Path, trouble: dict[str, Any]) -> None:
    vars(datasets).update(trouble)
    fetch(datasets, tmp_path, "2026-03-10")


def test_a_later_run_fetches_what_is_missing(datasets: Datasets, tmp_path: Path) -> None:
    datasets.wrong[PAPERS] = 4
    with pytest.raises(CorruptError, match=f"{PAPERS} is damaged"):
        fetch(datasets, tmp_path)
    assert not (tmp_path / "papers" / PAPERS).exists()
    with pytest.raises(InputError, match="not fetched to its end"):
        S2ag(tmp_path).parts()
    done = {path: count for path, count in datasets.requests.items() if (tmp_path / path[-30:]).is_file()}
    fetch(datasets, tmp_path)
    assert all(datasets.requests[path] == count for path, count in done.items())
    assert len(S2ag(tmp_path).parts()) == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"api_key": None}, r"refused the request \(Forbidden\).*S2_API_KEY or with --api-key-file"),
        ({"release": "2026-09-16"}, r"2026-09-16 is not there \(Release not found\).*latest"),
        ({"datasets": ["paper"]}, "no dataset 'paper'.*Did you mean 'papers'"),
        ({"endpoint": "http://127.0.0.1:9/datasets/v1"}, "cannot be reached: ConnectError"),
    ],
)
def test_bad_requests_are_refused_with_the_remedy(datasets: Datasets, options: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, StageError), match=message):
        listed(datasets, **{"release": "latest", **options})


@pytest.mark.parametrize(
    ("release", "files", "expected"),
    [
        ("../../etc", [], "name '../../etc' is not allowed"),
        ("r", ["https://s/%2e%2e%2fx"], None),
        ("r", ["https://s/.hidden.gz"], "name '.hidden.gz' is not allowed"),
        ("r", [7], "did not answer as documented"),
        ("r", ["http://[/x"], "has a file twice or a malformed address"),
    ],
)
def test_a_servers_names_are_plain(release: str, files: list[object], expected: str | None) -> None:
    described = {"release_id": release, "datasets": [{"name": "papers"}]}
    replies = {"/release/latest": described, "/release/r/dataset/papers": {"files": files}}
    with (
        answering(lambda request: send_json(request, 200, replies[request.path])) as address,
        pytest.raises((InputError, StageError), match=expected) if expected else nullcontext(),
    ):
        assert catalogue("latest", KEY, ["papers"], address).files == ["papers/x"]


def test_the_key_goes_to_the_api_alone_and_is_not_printed() -> None:
    """A redirect is not followed, as the key would go with it; a refusal may repeat the key."""
    asked = []

    def answer(request: Any) -> None:
        asked.append(request.path)
        if "moved" in request.path:
            send_json(request, 403, {"message": f"{KEY} is no key"})
        else:
            send(request, 302, b"", {"Location": "/elsewhere"})

    with answering(answer) as address:
        with pytest.raises(StageError, match="answered HTTP 302"):
            catalogue("latest", KEY, endpoint=address)
        with pytest.raises(InputError, match=r"\(\.\.\. is no key\)"):
            catalogue("moved", KEY, endpoint=address)
    assert asked == ["/release/latest", "/release/moved"]


def test_two_releases_in_one_folder_are_refused(tmp_path: Path) -> None:
    for name in ("papers/20230331_0_a.jsonl", "papers/20230331_1_a.jsonl", "abstracts/0.jsonl", "citations/0.jsonl"):
        write_lines(tmp_path / name, [s2ag_paper(1)])
    assert len(S2ag(tmp_path).parts()) == 4
    write_lines(tmp_path / "papers/2023-04-07-0.jsonl", [s2ag_paper(1)])
    with pytest.raises(InputError, match=r"files of 2 releases \(2023-03-31, 2023-04-07\)"):
        S2ag(tmp_path).parts()
