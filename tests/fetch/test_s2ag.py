from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pipeline.core.errors import CorruptError, InputError, StageError
from pipeline.fetch.release import fetch_release
from pipeline.fetch.remote import Remote, client
from pipeline.fetch.s2ag import S2agCatalogue
from pipeline.sources.s2ag import S2ag
from tests.fetch.server import KEY, Datasets, serving


def sleepless(_: float) -> None:
    """Wait for nothing."""


@pytest.fixture
def datasets() -> Datasets:
    held = Datasets()
    for number, release in enumerate(("2026-03-10", "2026-09-17")):
        held.releases[release] = {
            dataset: {
                f"20260917_{n}_{dataset}.gz": gzip.compress(f"{dataset} {n} {number}".encode() + os.urandom(60_000))
                for n in range(3)
            }
            for dataset in ("papers", "abstracts", "citations", "tldrs")
        }
    return held


@pytest.fixture
def session() -> Iterator[httpx.Client]:
    with client() as opened:
        yield opened


def fetch(
    session: httpx.Client,
    endpoint: str,
    folder: Path,
    release: str = "latest",
    key: str | None = KEY,
    connections: int = 3,
) -> dict[str, dict[str, object]]:
    catalogue = S2agCatalogue(session, release, key, endpoint=endpoint, wait=sleepless)
    record = fetch_release(session, catalogue, catalogue.files(), folder, connections=connections, sleep=sleepless)
    files: dict[str, dict[str, object]] = record["files"]
    return files


def check(folder: Path, held: Datasets, release: str = "2026-09-17") -> None:
    for dataset in ("papers", "abstracts", "citations"):
        for name, content in held.releases[release][dataset].items():
            assert (folder / dataset / name).read_bytes() == content
    assert not list(folder.rglob(".*"))


def test_a_release_is_fetched_checked_and_recorded(datasets: Datasets, session: httpx.Client, tmp_path: Path) -> None:
    with serving(datasets) as endpoint:
        files = fetch(session, endpoint, tmp_path)
        check(tmp_path, datasets)
        assert len(files) == 9
        assert all(len(str(each["md5"])) == 32 for each in files.values())
        record = json.loads((tmp_path / "release.json").read_text())
        assert record == {"release": "s2ag-2026-09-17", "files": files}
        before = datasets.requests.copy()
        assert fetch(session, endpoint, tmp_path) == files
    storage = [path for path in datasets.requests if path.startswith("/storage/")]
    assert all(datasets.requests[path] == before[path] == 1 for path in storage)
    assert datasets.keys == {("api", KEY), ("storage", None)}, "the key is for the API alone"


def test_an_older_release_and_a_busy_api(datasets: Datasets, session: httpx.Client, tmp_path: Path) -> None:
    datasets.busy = 3
    with serving(datasets) as endpoint:
        fetch(session, endpoint, tmp_path, release="2026-03-10")
    check(tmp_path, datasets, "2026-03-10")


def test_a_broken_connection_goes_on_by_range(datasets: Datasets, session: httpx.Client, tmp_path: Path) -> None:
    name = "20260917_1_papers.gz"
    datasets.break_after[name] = [20_000, 0, 10_000]
    with serving(datasets) as endpoint:
        fetch(session, endpoint, tmp_path)
    check(tmp_path, datasets)
    starts = [int(asked.removeprefix("bytes=").removesuffix("-")) for asked in datasets.ranges]
    assert starts == sorted(starts)
    assert starts[-1] == 30_000


def test_a_later_run_goes_on_where_a_killed_one_stopped(
    datasets: Datasets, session: httpx.Client, tmp_path: Path
) -> None:
    name = "20260917_2_citations.gz"
    datasets.break_after[name] = [25_000, *[0] * 40]
    with serving(datasets) as endpoint:
        with pytest.raises(StageError, match=f"{name} could not be fetched.*same command again"):
            fetch(session, endpoint, tmp_path)
        assert (tmp_path / "citations" / f".partial-{name}").stat().st_size == 25_000
        assert not (tmp_path / "citations" / name).exists()
        with pytest.raises(InputError, match="not fetched to its end"):
            S2ag(tmp_path).parts()
        datasets.break_after.clear()
        fetch(session, endpoint, tmp_path)
        check(tmp_path, datasets)
        assert datasets.ranges[-1] == "bytes=25000-"
        assert len(S2ag(tmp_path).parts()) == 9


def test_a_server_without_ranges_sends_all_again(datasets: Datasets, session: httpx.Client, tmp_path: Path) -> None:
    datasets.ranges_work = False
    datasets.break_after["20260917_0_papers.gz"] = [30_000]
    with serving(datasets) as endpoint:
        fetch(session, endpoint, tmp_path)
    check(tmp_path, datasets)


def test_a_file_that_changed_meanwhile_is_fetched_anew(
    datasets: Datasets, session: httpx.Client, tmp_path: Path
) -> None:
    name = "20260917_0_papers.gz"
    datasets.break_after[name] = [30_000, *[0] * 40]
    with serving(datasets) as endpoint:
        with pytest.raises(StageError):
            fetch(session, endpoint, tmp_path)
        datasets.break_after.clear()
        datasets.releases["2026-09-17"]["papers"][name] = gzip.compress(os.urandom(50_000))
        fetch(session, endpoint, tmp_path)
    check(tmp_path, datasets)


@pytest.mark.parametrize("connections", [1, 4])
def test_an_expired_address_is_signed_anew(
    datasets: Datasets, session: httpx.Client, tmp_path: Path, connections: int
) -> None:
    datasets.expire_after = 4
    datasets.break_after["20260917_1_abstracts.gz"] = [20_000]
    with serving(datasets) as endpoint:
        fetch(session, endpoint, tmp_path, connections=connections)
    check(tmp_path, datasets)
    assert datasets.signature == 2
    lists = [count for path, count in datasets.requests.items() if "/dataset/" in path]
    assert max(lists) == 2, "one list serves all the files it signs anew"


def test_wrong_bytes_are_fetched_again_and_then_refused(
    datasets: Datasets, session: httpx.Client, tmp_path: Path
) -> None:
    name = "20260917_1_papers.gz"
    datasets.wrong[name] = 1
    with serving(datasets) as endpoint:
        fetch(session, endpoint, tmp_path / "a")
        check(tmp_path / "a", datasets)
        datasets.wrong[name] = 2
        with pytest.raises(CorruptError, match=f"papers/{name} has MD5 .* should have .*sent it twice like this"):
            fetch(session, endpoint, tmp_path / "b")
        assert not (tmp_path / "b" / "papers" / name).exists()


def test_without_an_md5_the_gzip_checksum_tells(datasets: Datasets, session: httpx.Client, tmp_path: Path) -> None:
    datasets.whole_md5 = False
    datasets.wrong["20260917_1_papers.gz"] = 1
    with serving(datasets) as endpoint:
        files = fetch(session, endpoint, tmp_path)
    check(tmp_path, datasets)
    assert {each["checked"] for each in files.values()} == {"gzip"}


def test_what_cannot_be_fetched_is_refused_with_the_remedy(
    datasets: Datasets, session: httpx.Client, tmp_path: Path
) -> None:
    with serving(datasets) as endpoint:
        with pytest.raises(InputError, match=r"refused the request \(Forbidden\).*--api-key or in S2_API_KEY"):
            fetch(session, endpoint, tmp_path, key=None)
        with pytest.raises(InputError, match="no release '2026-09-16'.*Did you mean '2026-09-17'"):
            fetch(session, endpoint, tmp_path, release="2026-09-16")
        with pytest.raises(InputError, match="no dataset 'paper'.*Did you mean 'papers'"):
            S2agCatalogue(session, "latest", KEY, ["paper"], endpoint, sleepless)
        with pytest.raises(InputError, match=r"takes [\d,]+ GiB more"):
            fetch_release(
                session,
                S2agCatalogue(session, "latest", KEY, endpoint=endpoint, wait=sleepless),
                [Remote("papers/huge.gz", "http://127.0.0.1/", bytes=10**18)],
                tmp_path,
            )
    with client() as fresh, pytest.raises(StageError, match=r"gave no answer in 6 attempts \(ConnectError"):
        fetch(fresh, endpoint, tmp_path)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "a\nb"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is not allowed"):
        Remote(name, "http://127.0.0.1/")
