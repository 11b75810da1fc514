"""Fetching a release of the Datasets API from a server that misbehaves."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipeline.core.errors import CorruptError, InputError, StageError
from pipeline.sources.download import fetch_release
from pipeline.sources.remote import Remote
from pipeline.sources.s2ag import S2ag, S2agCatalogue
from tests.sources.server import KEY, Datasets, serving

PAPERS = "20260917_1_papers.gz"


def sleepless(_: float) -> None:
    """Wait for nothing."""


@pytest.fixture
def datasets() -> Iterator[Datasets]:
    held = Datasets()
    for number, release in enumerate(("2026-03-10", "2026-09-17")):
        held.releases[release] = {
            dataset: {
                f"20260917_{n}_{dataset}.gz": gzip.compress(f"{dataset} {n} {number}".encode() + os.urandom(60_000))
                for n in range(3)
            }
            for dataset in ("papers", "abstracts", "citations", "tldrs")
        }
    with serving(held):
        yield held


def catalogue(session: httpx.Client, held: Datasets, release: str = "latest", **options: Any) -> S2agCatalogue:
    options = {"api_key": KEY, "endpoint": f"{held.address}/datasets/v1", "wait": sleepless, **options}
    return S2agCatalogue(session, release, **options)


def fetch(
    session: httpx.Client, held: Datasets, folder: Path, release: str = "latest", connections: int = 3, **options: Any
) -> dict[str, dict[str, object]]:
    found = catalogue(session, held, release, **options)
    record = fetch_release(session, found, found.files(), folder, connections=connections, sleep=sleepless)
    files: dict[str, dict[str, object]] = record["files"]
    return files


def check(folder: Path, held: Datasets, release: str = "2026-09-17") -> None:
    for dataset in ("papers", "abstracts", "citations"):
        for name, content in held.releases[release][dataset].items():
            assert (folder / dataset / name).read_bytes() == content
    assert not list(folder.rglob(".*"))


def test_a_release_is_fetched_checked_and_recorded(datasets: Datasets, session: httpx.Client, tmp_path: Path) -> None:
    files = fetch(session, datasets, tmp_path)
    check(tmp_path, datasets)
    assert len(files) == 9
    assert all(len(str(each["md5"])) == 32 for each in files.values())
    assert json.loads((tmp_path / "release.json").read_text()) == {"release": "s2ag-2026-09-17", "files": files}
    before = datasets.requests.copy()
    assert fetch(session, datasets, tmp_path) == files
    storage = [path for path in datasets.requests if path.startswith("/storage/")]
    assert all(datasets.requests[path] == before[path] == 1 for path in storage)
    assert datasets.keys == {("api", KEY), ("storage", None)}, "the key is for the API alone"


@pytest.mark.parametrize(
    "trouble",
    [
        {"busy": 3},
        {"break_after": {PAPERS: [20_000, 0, 10_000]}},
        {"break_after": {PAPERS: [30_000]}, "ranges_work": False},
        {"wrong": Counter({PAPERS: 1})},
        {"wrong": Counter({PAPERS: 1}), "whole_md5": False},
    ],
    ids=["busy API", "broken connection", "no ranges", "wrong bytes", "wrong bytes without an MD5"],
)
def test_a_server_that_recovers(
    datasets: Datasets, session: httpx.Client, tmp_path: Path, trouble: dict[str, Any]
) -> None:
    vars(datasets).update(trouble)
    files = fetch(session, datasets, tmp_path, release="2026-03-10")
    check(tmp_path, datasets, "2026-03-10")
    if "whole_md5" in trouble:
        assert {each["checked"] for each in files.values()} == {"gzip"}
    if datasets.ranges:
        starts = [int(asked.removeprefix("bytes=").removesuffix("-")) for asked in datasets.ranges]
        assert (starts, starts[-1]) == (sorted(starts), 30_000)


@pytest.mark.parametrize("changed", [False, True])
def test_a_later_run_resumes(datasets: Datasets, session: httpx.Client, tmp_path: Path, changed: bool) -> None:
    """If the file has changed meanwhile, it is fetched from its start."""
    datasets.break_after[PAPERS] = [25_000, *[0] * 40]
    with pytest.raises(StageError, match=f"{PAPERS} could not be fetched.*same command again"):
        fetch(session, datasets, tmp_path)
    assert (tmp_path / "papers" / f".partial-{PAPERS}").stat().st_size == 25_000
    assert not (tmp_path / "papers" / PAPERS).exists()
    with pytest.raises(InputError, match="not fetched to its end"):
        S2ag(tmp_path).parts()
    datasets.break_after.clear()
    if changed:
        datasets.releases["2026-09-17"]["papers"][PAPERS] = gzip.compress(os.urandom(50_000))
    fetch(session, datasets, tmp_path)
    check(tmp_path, datasets)
    assert datasets.ranges[-1] == "bytes=25000-"
    assert len(S2ag(tmp_path).parts()) == 9


@pytest.mark.parametrize("connections", [1, 4])
def test_an_expired_address_is_signed_anew(
    datasets: Datasets, session: httpx.Client, tmp_path: Path, connections: int
) -> None:
    datasets.expire_after = 4
    datasets.break_after["20260917_1_abstracts.gz"] = [20_000]
    fetch(session, datasets, tmp_path, connections=connections)
    check(tmp_path, datasets)
    assert datasets.signature == 2
    lists = [count for path, count in datasets.requests.items() if "/dataset/" in path]
    assert max(lists) == 2, "one list renews all files of its dataset"


def test_a_file_that_is_wrong_twice_is_refused(datasets: Datasets, session: httpx.Client, tmp_path: Path) -> None:
    datasets.wrong[PAPERS] = 2
    with pytest.raises(CorruptError, match=f"papers/{PAPERS} has MD5 .* should have .*sent it twice like this"):
        fetch(session, datasets, tmp_path)
    assert not (tmp_path / "papers" / PAPERS).exists()


def test_bad_requests_are_refused_with_the_remedy(datasets: Datasets, session: httpx.Client, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"refused the request \(Forbidden\).*S2_API_KEY or with --api-key-file"):
        fetch(session, datasets, tmp_path, api_key=None)
    with pytest.raises(InputError, match="no release '2026-09-16'.*Did you mean '2026-09-17'"):
        catalogue(session, datasets, "2026-09-16")
    with pytest.raises(InputError, match="no dataset 'paper'.*Did you mean 'papers'"):
        catalogue(session, datasets, datasets=["paper"])
    huge = [Remote("papers/huge.gz", "http://127.0.0.1/", bytes=10**18)]
    with pytest.raises(InputError, match=r"takes [\d,]+ GiB more"):
        fetch_release(session, catalogue(session, datasets), huge, tmp_path)
    with pytest.raises(StageError, match=r"gave no answer in 6 attempts \(ConnectError"):
        catalogue(session, datasets, endpoint="http://127.0.0.1:9/datasets/v1")
    for name in ("../x", "/etc/x", "a/../../x", "", "a\nb"):
        with pytest.raises(InputError, match="is not allowed"):
            Remote(name, "http://127.0.0.1/")


@pytest.mark.parametrize("key", ["the kéy", "the key", "the\nkey", "\udcff", "the-key\x00"])
def test_a_key_that_is_none_is_refused_without_showing_it(session: httpx.Client, key: str) -> None:
    with pytest.raises(InputError, match="API key holds a character") as refused:
        S2agCatalogue(session, "latest", key, endpoint="http://127.0.0.1:9")
    assert "the" not in refused.value.what.removeprefix("the API key")


def answering(routes: dict[str, Any]) -> tuple[httpx.Client, list[httpx.Request]]:
    """Return a client whose requests are answered from a table by address, and the requests it made."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        found = routes[str(request.url)]
        if isinstance(found, str):
            return httpx.Response(302, headers={"Location": found})
        return httpx.Response(found[0], json=found[1])

    return httpx.Client(transport=httpx.MockTransport(answer), follow_redirects=True), asked


def test_the_key_goes_to_one_origin_alone() -> None:
    """Redirects within it keep the key. Another scheme, host or port does not get it, nor what comes after."""
    release = {"release_id": "r", "datasets": [{"name": "papers"}]}
    chain = [f"https://a{path}" for path in ("/release/latest", "/moved", ":8443/x")]
    chain += ["http://a/x", "https://b/x", "https://a/y"]
    session, asked = answering({**dict(itertools.pairwise(chain)), chain[-1]: (200, release)})
    S2agCatalogue(session, "latest", f" {KEY}\n", ["papers"], endpoint="https://a", wait=sleepless)
    assert [str(request.url) for request in asked] == chain
    assert [request.headers.get("x-api-key") for request in asked] == [KEY, KEY, None, None, None, None]
    session, _ = answering({chain[0]: chain[0]})
    with pytest.raises(StageError, match="more than 10 redirects"):
        S2agCatalogue(session, "latest", KEY, endpoint="https://a", wait=sleepless)


@pytest.mark.parametrize(
    ("release", "files", "expected"),
    [
        ("../../etc", [], "name '../../etc' is not allowed"),
        (".hidden", [], "name '.hidden' is not allowed"),
        ("r\n\x1b[31m", [], "is not allowed"),
        ("r", ["https://s/%2e%2e%2fx"], None),
        ("r", ["https://s/.partial-x.gz"], "name '.partial-x.gz' is not allowed"),
        ("r", ["https://s/" + "x" * 300], "is not allowed"),
        ("r", ["https://s/a%00b"], "is not allowed"),
        ("r", [7], "holds no addresses"),
        ("r", ["http://[/x"], "holds no addresses"),
    ],
)
def test_a_servers_names_are_plain(release: str, files: list[object], expected: str | None) -> None:
    described = {"release_id": release, "datasets": [{"name": "papers"}]}
    listed = {
        "https://a/release/latest": (200, described),
        "https://a/release/r/dataset/papers": (200, {"files": files}),
    }
    session, _ = answering(listed)

    def names() -> list[str]:
        return [each.name for each in S2agCatalogue(session, "latest", KEY, ["papers"], "https://a", sleepless).files()]

    if expected is None:
        assert names() == ["papers/x"]
        return
    with pytest.raises((InputError, StageError), match=expected):
        names()


def test_a_server_that_repeats_the_key_does_not_have_it_printed() -> None:
    session, _ = answering({"https://a/release/latest": (403, {"message": f"{KEY} is no key"})})
    with pytest.raises(InputError) as refused:
        S2agCatalogue(session, "latest", KEY, endpoint="https://a", wait=sleepless)
    assert "(... is no key)" in str(refused.value)
