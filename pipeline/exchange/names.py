"""What names of columns say: a sum, a fact about the system, a measure, and whether lower is better."""

from __future__ import annotations

import fnmatch
import re

from pipeline.core.errors import InputError
from pipeline.measure.measures import parse_measures

_ERRORS = re.compile(
    r"(?i)(?!neg|.*st(?:andar)?d[\W_]?err)(.*[\W_])?(wer|cer|eer|mer|ter|der|errors?|err|hallucinat\w*|perplexity|ppl|rmse|mae|mse|(log)?loss|nll|brier"
    r"|latency)([\W_].*)?|.*[↓⬇].*"
)
_GAINS = re.compile(
    r"(?i)(.*[\W_])?(acc|accuracy|auc|f1|em|map|mrr|ndcg\w*|recall\w*|precision|bleu|rouge\w*|consisten\w*|correct\w*|answer\w*"
    r"|success|win|pass@?\d*)([\W_].*)?|.*[↑⬆].*"
)


SUMS = re.compile(
    r"(?i)\W*((micro|macro|weighted|geometric|harmonic)[\W_]*)?(all|avg|average|mean|median|overall|total|sum|std|amean|gmean)(?![^\W_]).*"
)

_NO_ITEM = [
    re.compile(f"(?i){pattern}")
    for pattern in (
        r"(.*[\W_])?(rank(ing)?|avg|average|mean|overall|size|param(eter)?s?|std(err|ev|dev)?|ci|n_?samples|memory|vram|gpus?"
        r"|standard[\W_](error|deviation)"
        r"|co2|co₂|carbon|emissions?|latency|throughput|rtfx?|qps|flops|votes|battles|likes|downloads|prices?)([\W_].*)?",
        r"(.*[\W_])?(time|date|days|year|costs?|lengths?|n?tokens|version|counts?|samples|epochs?|layers|dim(ension)?s?"
        r"|window|seconds|secs|speed|ram|energy|kwh|index|position|margin|seed|shots?|id)\W*(\([^)]*\)\W*)?",
        r"#|n|no\.?|nr\.?|wins|losses|ties|se|sd|low|high|lower|upper|total|borda\b.*|hub\b.*|unnamed.*|zero.shot.*|n_\w+|(.*[\W_])?num_\w+|.*±.*",
        r".*[\[(](b|m|k|gb|mb|gib|mib|kg|s|ms|h|\$|€|usd|words?)[\])]\W*",
    )
]
"""Columns of leaderboards that sum up the others or describe the system, by a word of their names, and its place."""

_MEAN = re.compile(r"(?i)(^|[\W_])(mean|avg|average)(?=$|[\W_])")
_OF_METRICS = re.compile(
    r"(?i)train(ing)?|test|val(id(ation)?)?|dev|macro|micro|weighted|balanced|top|score|rate|mean|avg|roc|pr|log|neg|\d*"
)
"""Words of names of metrics beside the metric."""

_OF_TOOLS = re.compile(
    r"(num|gm|set|iprec|relstring|bpref|R[pP]rec|infAP|AP|RR|nDCG|P|R|RBP|ERR|Judged|SetF|Success)\w*([@(].*)?"
)
"""Measures of trec_eval and ir_measures that we lack."""

_MEASURES = ("map", "mrr", "ndcg", "ap", "rr", "bpref")


def sign_of_name(name: str) -> int:
    """Return -1 if a name says that lower is better (``WER``, ``↓``), 1 that higher is (``Accuracy``), else 0."""
    return -1 if _ERRORS.fullmatch(name.strip()) else 1 if _GAINS.fullmatch(name.strip()) else 0


def in_our_spelling(metric: str) -> str:
    """Return the name of a metric in our spelling (``ndcg@10`` for ``nDCG@10``), or unchanged if it is no measure."""
    return measure_name(metric) or metric


def measure_name(text: str) -> str | None:
    """Return a measure's name in our spelling; None if it is none."""
    try:
        return str(parse_measures(text)[0])
    except InputError:
        return text if _OF_TOOLS.fullmatch(text) else None


def is_called(name: str, pattern: str) -> bool:
    """Return whether a name is a pattern, or matches one with ``*`` and ``?``."""
    plain = pattern.replace("[", "[[]")
    return name.strip() == pattern or fnmatch.fnmatchcase(name.strip(), plain)


def metric_in(head: str) -> tuple[str, str]:
    """Return the measure with a cutoff or an old name that a column is called by, and the rest: ``nDCG@10 NQ``."""
    words = head.split()
    for place in (0, -1):
        if words and ("@" in words[place] or words[place].casefold() in _MEASURES):
            measure = measure_name(words[place])
            if measure:
                return measure, " ".join(words[1:] if place == 0 else words[:-1]).strip(" -–:()")
    return "", head


def is_metric(head: str) -> bool:
    """Return whether the words of a name are those of a metric, such as ``test_accuracy``."""
    words = re.split(r"[\W_]+", head.strip())
    signs = [sign_of_name(word) for word in words if not _OF_METRICS.fullmatch(word)]
    return bool(measure_name(head.strip())) or (any(signs) and all(signs))


def describes(head: str, *, sums: bool = False, of_metrics: bool = False) -> bool:
    """Return whether the name of a column says that it describes the system, or sums up others.

    ``sums``: of columns of systems. ``of_metrics``: a mean of a metric is a metric, as over repetitions.
    """
    name = _MEAN.sub("", head).strip(" _-") if of_metrics else head.strip()
    if sums:
        return bool(re.fullmatch(r"(?i)(#|index|unnamed.*|no\.?|rank)?", name))
    return not name or any(pattern.fullmatch(name) for pattern in _NO_ITEM)
