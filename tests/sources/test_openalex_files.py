from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import InputError, StageError
from pipeline.sources.download import fetch_release
from pipeline.sources.openalex import OpenAlex
from pipeline.sources.openalex_files import OpenAlexCatalogue, list_objects


def sleepless(_: float) -> None:
    """Wait for nothing."""


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """A local S3 server, and boto3 to fill it with; what is tested uses neither boto3 nor a signature."""
    boto3 = pytest.importorskip("boto3", reason="the S3 server of moto: pip install 'moto[s3]' flask-cors")
    server_module = pytest.importorskip("moto.server", reason="pip install 'moto[s3]' flask-cors")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    made = boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106
        region_name="us-east-1",
    )
    yield made
    server.stop()


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> tuple[Any, str]:
    name = "openalex-" + hashlib.sha1(request.node.name.encode(), usedforsecurity=False).hexdigest()[:12]
    s3.create_bucket(Bucket=name)

    def put(key: str, content: bytes) -> None:
        s3.put_object(Bucket=name, Key=key, Body=content, ACL="public-read")

    return put, f"{s3.meta.endpoint_url}/{name}"


def works(number: int) -> bytes:
    lines = [json.dumps({"id": f"https://openalex.org/W{number}{n}", "title": f"Work {n}"}) for n in range(50)]
    return gzip.compress("\n".join(lines).encode())


def parquet(number: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [f"https://openalex.org/W{number}{n}" for n in range(50)]}), sink)
    return sink.getvalue()


def manifest(prefix: str, files: dict[str, bytes]) -> bytes:
    entries = [
        {
            "url": f"s3://openalex/{prefix}{name}",
            "meta": {"content_length": len(x), "record_count": 50, "sha256": hashlib.sha256(x).hexdigest()},
        }
        for name, x in files.items()
    ]
    return json.dumps({"date": "2026-09-23", "format": "jsonl", "entity": "works", "files": entries}).encode()


@pytest.mark.parametrize(("kind", "suffix"), [("jsonl", "gz"), ("parquet", "parquet")])
def test_the_present_layouts_are_fetched_and_read(
    bucket: Any, session: httpx.Client, tmp_path: Path, kind: str, suffix: str
) -> None:
    put, endpoint = bucket
    prefix = f"data/{kind}/works/"
    make = works if kind == "jsonl" else parquet
    files = {f"updated_date=2026-06-2{n}/part_0000.{suffix}": make(n) for n in range(3)}
    for name, content in files.items():
        put(prefix + name, content)
    put(f"{prefix}manifest.json", manifest(prefix, files))
    put(f"data/{kind}/authors/updated_date=2026-06-20/part_0000.{suffix}", b"other")
    put(f"{prefix}README.txt", b"other")
    catalogue = OpenAlexCatalogue(session, kind, endpoint, sleepless)
    record = fetch_release(session, catalogue, catalogue.files(), tmp_path, sleep=sleepless)
    assert sorted(record["files"]) == sorted([*(prefix + name for name in files), f"{prefix}manifest.json"])
    assert all((tmp_path / prefix / name).read_bytes() == content for name, content in files.items())
    sums = {name: entry.get("sha256") for name, entry in record["files"].items()}
    assert sums[prefix + next(iter(files))] == hashlib.sha256(next(iter(files.values()))).hexdigest()
    assert catalogue.name.startswith(f"openalex-{kind}-20")
    release = OpenAlex(tmp_path)
    assert sum(batch.read for part in release.parts() for batch in release.read(part)) == 150


def test_the_legacy_layout_brings_its_merged_ids(bucket: Any, session: httpx.Client, tmp_path: Path) -> None:
    put, endpoint = bucket
    put("legacy-data/works/updated_date=2023-04-10/part_000.gz", works(1))
    put("legacy-data/merged_ids/works/2022-07-15.csv.gz", gzip.compress(b"merge_date,id,merge_into_id\n2022,W10,W11\n"))
    catalogue = OpenAlexCatalogue(session, "legacy", endpoint, sleepless)
    fetch_release(session, catalogue, catalogue.files(), tmp_path, sleep=sleepless)
    release = OpenAlex(tmp_path)
    batches = [batch for part in release.parts() for batch in release.read(part)]
    assert sum(batch.dropped["merged_into_another"] for batch in batches) == 1


def test_listings_go_on_page_after_page(bucket: Any, session: httpx.Client) -> None:
    put, endpoint = bucket
    keys = [f"data/jsonl/works/updated_date=2026-01-01/part {n:04d}.gz" for n in range(30)]
    for key in keys:
        put(key, b"")
    found = list(list_objects(session, endpoint, "data/jsonl/works/", page=7, wait=sleepless))
    assert [each.key for each in found] == keys


def test_a_snapshot_that_is_replaced_meanwhile_is_an_error(
    bucket: Any, s3: Any, session: httpx.Client, tmp_path: Path
) -> None:
    put, endpoint = bucket
    key = "data/jsonl/works/updated_date=2026-01-01/part_0000.gz"
    put(key, works(1))
    catalogue = OpenAlexCatalogue(session, "jsonl", endpoint, sleepless)
    remotes = catalogue.files()
    s3.delete_object(Bucket=endpoint.rpartition("/")[2], Key=key)
    with pytest.raises(InputError, match="snapshot was replaced while it was being fetched"):
        fetch_release(session, catalogue, remotes, tmp_path, sleep=sleepless)


def test_what_is_not_there_is_refused(bucket: Any, session: httpx.Client) -> None:
    _, endpoint = bucket
    with pytest.raises(InputError, match="holds no parquet works"):
        OpenAlexCatalogue(session, "parquet", endpoint, sleepless)
    with pytest.raises(InputError, match="no format 'json'.*'jsonl'"):
        OpenAlexCatalogue(session, "json", endpoint, sleepless)
    with pytest.raises(StageError, match=r"does not list data/jsonl/works/ \(HTTP 404\)"):
        OpenAlexCatalogue(session, "jsonl", f"{endpoint}-nowhere", sleepless)
