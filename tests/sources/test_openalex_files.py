from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import InputError, StageError
from pipeline.sources.fetch import Catalogue, fetch_release
from pipeline.sources.openalex import OpenAlex
from pipeline.sources.openalex_files import catalogue


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """A local S3 server, and boto3 to fill it with; what is tested uses neither boto3 nor a signature."""
    boto3 = pytest.importorskip("boto3", reason="the S3 server of moto: pip install 'moto[s3]' flask-cors")
    server_module = pytest.importorskip("moto.server", reason="pip install 'moto[s3]' flask-cors")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    yield boto3.client("s3", endpoint_url=address, region_name="us-east-1", **keys)
    server.stop()


class Bucket:
    """A bucket of the test's own, and how its catalogue is opened."""

    def __init__(self, s3: Any, name: str) -> None:
        self.s3, self.name = s3, name
        self.endpoint = f"{s3.meta.endpoint_url}/{name}"
        s3.create_bucket(Bucket=name)

    def put(self, key: str, content: bytes) -> None:
        self.s3.put_object(Bucket=self.name, Key=key, Body=content, ACL="public-read")

    def catalogue(self, kind: str, suffix: str = "") -> Catalogue:
        return catalogue(kind, self.endpoint + suffix)


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> Bucket:
    digest = hashlib.sha1(request.node.name.encode(), usedforsecurity=False).hexdigest()
    return Bucket(s3, f"openalex-{digest[:12]}")


def works(number: int) -> bytes:
    lines = [json.dumps({"id": f"https://openalex.org/W{number}{n}", "title": f"Work {n}"}) for n in range(50)]
    return gzip.compress("\n".join(lines).encode())


def parquet(number: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [f"https://openalex.org/W{number}{n}" for n in range(50)]}), sink)
    return sink.getvalue()


def manifest(prefix: str, files: dict[str, bytes]) -> bytes:
    metas = [
        {"content_length": len(content), "record_count": 50, "sha256": hashlib.sha256(content).hexdigest()}
        for content in files.values()
    ]
    entries = [{"url": f"s3://openalex/{prefix}{name}", "meta": m} for name, m in zip(files, metas, strict=True)]
    return json.dumps({"date": "2026-09-23", "format": "jsonl", "entity": "works", "files": entries}).encode()


@pytest.mark.parametrize(("kind", "suffix", "make"), [("jsonl", "gz", works), ("parquet", "parquet", parquet)])
def test_the_present_layouts_are_fetched_and_read(
    bucket: Bucket, tmp_path: Path, kind: str, suffix: str, make: Any
) -> None:
    prefix = f"data/{kind}/works/"
    files = {f"updated_date=2026-06-2{n}/part_0000.{suffix}": make(n) for n in range(3)}
    objects = {f"{prefix}{name}": content for name, content in files.items()}
    objects[f"{prefix}manifest.json"] = manifest(prefix, files)
    other = {f"data/{kind}/authors/updated_date=2026-06-20/part_0000.{suffix}": b"", f"{prefix}README.txt": b""}
    for key, content in (objects | other).items():
        bucket.put(key, content)
    listed = bucket.catalogue(kind)
    record = fetch_release(listed, tmp_path)
    assert record["files"] == {name: {"bytes": len(content)} for name, content in sorted(objects.items())}
    assert all((tmp_path / name).read_bytes() == content for name, content in objects.items())
    sha256 = {remote.name: remote.sha256 for remote in listed.files if not remote.name.endswith("manifest.json")}
    assert sha256 == {f"{prefix}{name}": hashlib.sha256(content).hexdigest() for name, content in files.items()}
    assert listed.name.startswith(f"openalex-{kind}-20")
    release = OpenAlex(tmp_path)
    assert sum(batch.read for part in release.parts() for batch in release.read(part)) == 150


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_snapshot_that_is_replaced_meanwhile_is_an_error(bucket: Bucket, tmp_path: Path, change: str) -> None:
    key = "data/jsonl/works/updated_date=2026-01-01/part_0000.gz"
    bucket.put(key, works(1))
    listed = bucket.catalogue("jsonl")
    if change == "removed":
        bucket.s3.delete_object(Bucket=bucket.name, Key=key)
    else:
        bucket.put(key, works(2))
    with pytest.raises(StageError, match=r"part_0000.gz is not there any more .*If the release was replaced"):
        fetch_release(listed, tmp_path)
    assert not (tmp_path / key).exists()


@pytest.mark.parametrize(
    ("kind", "suffix", "message"),
    [
        ("parquet", "", "holds no parquet works"),
        ("json", "", "no format 'json'.*'jsonl'"),
        ("jsonl", "-nowhere", "the listing of data/jsonl/works does not come .*404 Not Found"),
    ],
)
def test_what_is_not_there_is_refused(bucket: Bucket, kind: str, suffix: str, message: str) -> None:
    with pytest.raises((InputError, StageError), match=message):
        bucket.catalogue(kind, suffix)
