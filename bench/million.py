"""Write a release of over a million real papers: arXiv's as candidates beside those of a release with citations.

    python bench/million.py ARXIV_ARCHIVE ARXIV_META CITED OUT

ARXIV_ARCHIVE and ARXIV_META are clones, also bare or without their largest objects, of github.com/staeiou/arxiv_archive
(541,485 papers until 2019) and github.com/HeinrichHartmann/arxiv_meta (740,861). CITED is a release in the layout of
S2ORC 2020, whose citations are the judgements; papers of arXiv have no references here. Those whose id or title is in
CITED, that come twice, or that have no year or under 50 characters of abstract are left out; papers of CITED get
authors by their arXiv ids. It takes three minutes of processor time and half a GB of disk.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import lzma
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FIELDS = {  # first letters of categories, or of their names in words; all others are of Physics
    "Physics": ("math-ph", "mathematical phys"),
    "Computer Science": ("computer", "cs"),
    "Mathematics": ("math", "stat", "alg-geom", "dg-ga", "funct", "q-alg"),
    "Biology": ("quantitative bio", "q-bio"),
    "Economics": ("quantitative fin", "q-fin", "econ"),
    "Engineering": ("eess", "electrical"),
}
_COLUMNS = ("arxiv_id", "title", "abstract", "created", "primary_cat", "author_text")


def _letters(title: str) -> str:
    return " ".join(re.findall("[a-z0-9]+", title.lower()))


def blobs(repository: str, pattern: str) -> Iterator[bytes]:
    """Yield the files of a repository whose path matches and whose object is there."""
    for line in subprocess.check_output(["git", "ls-tree", "-r", "-l", "HEAD"], cwd=repository).splitlines():
        (_, _, sha, size), path = line.partition(b"\t")[0].split(), line.partition(b"\t")[2]
        if re.search(pattern, path.decode()) and size not in (b"BAD", b"0"):
            yield subprocess.check_output(["git", "cat-file", "blob", sha], cwd=repository)


def archive(repository: str) -> Iterator[tuple[Any, ...]]:
    """Yield the papers of arxiv_archive, tables in xz or ZIP: id, title, abstract, date, category, names of authors."""
    for blob in blobs(repository, r"processed_data/20200101.*\.(xz|zip)$"):
        packed = zipfile.ZipFile(io.BytesIO(blob)) if blob.startswith(b"PK") else None
        names = [name for name in packed.namelist() if name.endswith(".tsv")] if packed else [""]
        for table in (packed.read(name) if packed else lzma.decompress(blob) for name in names):
            for row in csv.DictReader(io.StringIO(table.decode("utf8", "replace")), delimiter="\t"):
                paper, title, abstract, date, subject, authors = (row[column] for column in _COLUMNS)
                if authors is not None:
                    people = re.split(r",| and ", re.sub(r"\([^()]*\)", "", authors))
                    yield paper, title, abstract, date, subject, [*filter(str.strip, people)]


def meta(repository: str) -> Iterator[tuple[Any, ...]]:
    """Yield the papers of arxiv_meta, a pair of id and record a line, likewise."""
    for blob in blobs(repository, r"\.json$"):
        for paper, record in map(json.loads, filter(bytes.strip, blob.split(b"\n"))):
            title, abstract, subject = ((record.get(name) or [""])[0] for name in ("title", "description", "subject"))
            yield paper, title, abstract, min(record.get("date") or [""]), subject, record.get("creator") or []


def author(name: str) -> dict[str, Any]:
    """Return a name, ``Bell, Jocelyn`` or ``Jocelyn Bell``, as S2ORC has it."""
    last, comma, first = name.strip().partition(",")
    *before, end = last.split() or [""]
    words = first.split() if comma else before
    return {"first": "".join(words[:1]), "middle": words[1:], "last": last.strip() if comma else end, "suffix": ""}


def s2orc(arxiv_id: str, title: str, abstract: str, date: str, subject: str, people: list[str]) -> dict[str, Any]:
    """Return a paper as S2ORC has it."""
    field = next((field for field, starts in _FIELDS.items() if subject.lower().startswith(starts)), "Physics")
    texts = {"title": " ".join(title.split()), "abstract": " ".join(abstract.split())}
    facts = {"paper_id": f"ax{arxiv_id}", "arxiv_id": arxiv_id, "year": int(date[:4]), "mag_field_of_study": [field]}
    return facts | texts | {"authors": [*map(author, people)], "outbound_citations": [], "inbound_citations": []}


def main(archived: str, described: str, cited: Path, out: Path) -> None:
    """Write the release; print how many papers of arXiv are kept, and why others are not."""
    csv.field_size_limit(10**9)
    out.mkdir(parents=True, exist_ok=True)
    files = sorted(cited.glob("metadata_*.jsonl.gz"))
    shards = {path.name: [*map(json.loads, gzip.decompress(path.read_bytes()).splitlines())] for path in files}
    known = {paper.get("arxiv_id") for papers in shards.values() for paper in papers}
    titles = {_letters(paper["title"] or "") for papers in shards.values() for paper in papers}
    counts, seen, authors = Counter[str](), set[str](), dict[str, list[dict[str, Any]]]()
    parts = [gzip.open(out / f"metadata_{part}.jsonl.gz", "wt", compresslevel=1) for part in range(90, 94)]  # noqa: SIM115
    for paper in itertools.chain(archive(archived), meta(described)):
        arxiv_id, title, abstract, date, _, people = paper
        if arxiv_id in known and people:
            authors.setdefault(arxiv_id, [*map(author, people)])
        reasons = {
            "again": arxiv_id in seen,
            "in the cited release": arxiv_id in known or _letters(title) in titles,
            "no year or abstract": not date[:4].isdigit() or len(" ".join(abstract.split())) < 50,
        }
        counts[reason := next((reason for reason, holds in reasons.items() if holds), "kept")] += 1
        if reason == "kept":
            parts[counts["kept"] % len(parts)].write(json.dumps(s2orc(*paper)) + "\n")
        seen.add(arxiv_id)
    for part in parts:
        part.close()
    for name, papers in shards.items():
        for paper in papers:
            paper["authors"] = paper["authors"] or authors.get(paper.get("arxiv_id"), [])
        (out / name).write_bytes(gzip.compress("".join(json.dumps(paper) + "\n" for paper in papers).encode(), 1))
    print(dict(counts))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
