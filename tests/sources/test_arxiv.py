from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.core.fields import FIELD_BIT
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import doi_key
from pipeline.sources.collection import Arxiv
from tests.releases import read


def record(paper: str, categories: str, created: str, **values: Any) -> dict[str, Any]:
    """Return a record in the layout of the dump, every key of it, with invented texts."""
    return {
        "id": paper, "submitter": "A. Writer", "authors": "A. Writer and B. Reader", "title": f"On number\n  {paper}",
        "comments": None, "journal-ref": None, "doi": None, "report-no": None, "categories": categories,
        "license": None, "abstract": "  We count to a number,\nand find it. $n^2$\n",
        "versions": [{"version": "v1", "created": created}], "update_date": "2015-05-13",
        "authors_parsed": [["Writer", "A.", ""], ["Reader", "B.", ""]], **values,
    }  # fmt: skip


def test_records_of_the_dump(tmp_path: Path) -> None:
    later = [{"version": "v2", "created": "Tue, 5 Jan 2010 00:00:00 GMT"}]
    written = [
        record("0704.0001", "hep-ph math.CO", "Mon, 2 Apr 2007 19:18:42 GMT", doi="10.1/A.1 10.1/B.2"),
        record("2301.12345", "cs.CL stat.ML", "Sun, 29 Jan 2023 08:00:00 GMT"),
        record("alg-geom/9201001", "alg-geom math.AG", "", versions=later),
        record("q-bio/0401001", "q-bio.GN", "", versions=[]),
        record("1", "", "soon", abstract=None),
    ]
    lines = "".join(json.dumps(line) + "\n" for line in written)
    (tmp_path / "arxiv-metadata-oai-snapshot.json").write_text(lines)
    rows, total = read(Arxiv(tmp_path))
    assert [row["paper_id"] for row in rows] == [line["id"] for line in written]
    assert rows[0]["title"], rows[0]["abstract"] == (
        "On the number 0704.0001",
        "We count to a number, and find it. $n^2$",
    )
    assert [row["year"] for row in rows] == [2007, 2023, 2010, 2015, NO_YEAR]
    fields = ["Physics", "Computer Science", "Mathematics", "Biology"]
    assert [row["fields"] for row in rows] == [*(1 << FIELD_BIT[name] for name in fields), 0]
    assert [row["doi_key"] for row in rows] == [doi_key("10.1/a.1"), 0, 0, 0, 0]
    assert not any(row["outbound"] or row["n_inbound"] for row in rows)
    assert (total.read, total.dropped, rows[-1]["abstract"]) == (5, {}, "")
