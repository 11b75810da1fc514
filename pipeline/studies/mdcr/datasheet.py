"""The page that goes with a benchmark: what it is, how it was made, licence, limits, checksums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.core.artifact import Artifact
from pipeline.corpus.reader import Corpus
from pipeline.studies.mdcr.candidates import GRAPH, MOST_CITED, RANDOM

_LICENCES = {
    "s2orc2020": "ODC-By 1.0 for S2ORC 2020",
    "s2ag": "ODC-By 1.0 for the Semantic Scholar Academic Graph",
    "openalex": "CC0 for OpenAlex",
    "synthetic": "none is needed for generated texts",
}

_LIMITS = (
    "A negative is a paper that the query does not cite in this corpus. It can still be relevant.",
    "References that the release lacks count as uncited, so some negatives are unseen positives.",
    "Negatives of the named systems are hard for these systems above all, which lowers their scores.",
    "Queries are of one year. Fields are those of the release, and a paper counts in each of its fields.",
    "Abstracts are short texts of papers. Scores say nothing about full texts.",
)


def datasheet(benchmark: Artifact, corpus: Artifact, recipe: Mapping[str, Any]) -> str:
    """Return the datasheet of a benchmark in Markdown; ``recipe`` has the settings of the study."""
    counts, source = benchmark.manifest.counts, corpus.manifest.config["source"]
    systems = ", ".join(counts["model_negatives"])
    types = ", ".join([*counts["model_negatives"], GRAPH, MOST_CITED, RANDOM])
    lines = [
        "# Datasheet",
        "",
        "## What it is",
        "",
        "Lists of candidate papers for citation recommendation, after Medić & Šnajder 2022, section 4. A query is a "
        f"paper of {recipe['year']}. Its list has up to {recipe['positives']} papers that it cites (`true`) and up to "
        f"{recipe['negatives']} papers that it does not cite of each of these types: {types}.",
        "",
        "`mdcr_SPLIT.json` maps field, query id and type to candidate ids. `mdcr_SPLIT_data.jsonl` has title and "
        "abstract of every paper. The splits `val` and `test` share no query.",
        "",
        "## How it was made",
        "",
        f"- Corpus: {corpus.name} (source {source}, {len(Corpus(corpus)):,} papers).",
        f"- Field-level pools of {recipe['size']} candidates at most, {recipe['queries']} queries a field and split.",
        f"- Systems compared: {recipe['systems']}. Negatives of systems are drawn from the top {recipe['top']} of "
        f"these: {systems}.",
        f"- `{GRAPH}`: near the query in the citation graph, by overlap. `{MOST_CITED}`: of the {recipe['top']} most "
        f"cited papers of the field. `{RANDOM}`: of all prefiltered papers up to {recipe['year']}.",
        f"- Seed: {recipe['seed']}. The same corpus and settings give the same bytes. Artifact: {benchmark.name}.",
        "",
        "## Counts",
        "",
        "| count | value |",
        "|---|---|",
        *(f"| {name.replace('_', ' ')} | {value:,} |" for name, value in counts.items() if isinstance(value, int)),
        "",
        *(f"- Left out: {field}: {reason}." for field, reason in counts["fields_left_out"].items()),
        "",
        "## Licence of the source",
        "",
        f"That of the release the corpus was built from ({_LICENCES.get(source, 'see there')}). Each abstract "
        "keeps the licence of its publisher.",
        "",
        "## Known limits",
        "",
        *(f"- {limit}" for limit in _LIMITS),
        "",
        "## Checksums",
        "",
        "| file | bytes | SHA-256 |",
        "|---|---|---|",
        *(f"| {file.path} | {file.bytes:,} | {file.sha256} |" for file in benchmark.outputs()),
        "",
    ]
    return "\n".join(lines)
