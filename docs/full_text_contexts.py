"""Write the sentences of full text (S2ORC, unarXive) that cite papers, for ``mdcr corpus --contexts``.

    python full_text_contexts.py full_text.jsonl.gz [doi] > contexts.jsonl

A word chooses the ids of cited papers in unarXive (``open_alex_id``, ``doi``, ``arxiv_id``).
"""

import gzip
import json
import re
import sys
from pathlib import Path

SENTENCE_END = re.compile(r"(?<=[.!?])(?<!al\.)(?<!Fig\.)(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)(?<!vs\.)\s+(?=[A-Z])")


def annotations(part: dict, *names: str) -> list[dict]:
    """Return the annotations of S2ORC under the first name that is there; they are lists, or lists in texts."""
    found = next((part["annotations"][name] for name in names if part["annotations"].get(name)), "[]")
    listed = json.loads(found) if isinstance(found, str) else found
    return [{**(item.get("attributes") or {}), "start": item["start"]} for item in listed]


def paragraphs(record: dict, kind: str) -> tuple[dict[str, str], list[tuple[str, list[dict]]]]:
    """Return the cited papers by reference, and texts with their citations."""
    if "body_text" in record:
        of_ref = {
            ref: (entry.get("ids") or {}).get(kind) or entry.get("link") for ref, entry in record["bib_entries"].items()
        }
        return of_ref, [(part["text"], part["cite_spans"]) for part in record["body_text"]]
    body = record.get("content") or record["body"]
    entries = annotations(record.get("bibliography") or body, "bibentry", "bib_entry")
    return {item["id"]: item.get("matched_paper_id") for item in entries}, [
        (body["text"], annotations(body, "bibref", "bib_ref"))
    ]


def main(path: str, kind: str = "open_alex_id") -> None:
    """Print a context a line."""
    data = Path(path).read_bytes()
    for line in (gzip.decompress(data) if path.endswith(".gz") else data).splitlines():
        record = json.loads(line)
        papers, texts = paragraphs(record, kind)
        for text, spans in texts:
            ends = [match.start() for match in SENTENCE_END.finditer(text)]
            for start, end in zip([0, *ends], [*ends, len(text)], strict=True):
                cited = {papers.get(span.get("ref_id")) for span in spans if start <= int(span["start"]) < end}
                if cited := [str(paper).removeprefix("https://openalex.org/") for paper in cited if paper]:
                    context = re.sub(r"\{\{cite:[^}]*\}\}", "", text[start:end]).strip()
                    citing = str(record.get("paper_id") or record.get("corpusid") or "")
                    print(
                        json.dumps(
                            {"context": context, "cited": sorted(cited), "citing": citing, "year": record.get("year")}
                        )
                    )


if __name__ == "__main__":
    main(*sys.argv[1:])
