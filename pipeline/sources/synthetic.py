"""A generated release: any number of papers similar to S2ORC, from a seed.

The generative model:

- A release has units of about 8,192 papers. A unit has its own random generator, so any process can generate it. Papers
  cite papers of their unit, or papers that the release lacks.
- Each of the 19 fields has subjects, and each subject has words. All units share them.
- A unit has topics of about 150 papers. A topic mixes three subjects, mostly of its field.
- A paper has a topic, a date and a heavy-tailed popularity. It uses twenty words of its topic and coins two.
- It cites older papers in proportion to their popularity, mostly recent ones and mostly of its own topic.
- A token is a function word, a general word, a word of the paper's field, one of its twenty words, or a word coined by
  the paper or by a cited paper. Within each of these classes the frequencies follow Zipf's law.
- Some papers lack a title, an abstract, a year, a field or references; some titles repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.csr import Ints, offsets_of
from pipeline.core.errors import InputError
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.rng import generator
from pipeline.core.schema import NO_YEAR
from pipeline.sources import options
from pipeline.sources.base import BATCH_ROWS, RAW_PAPERS, PaperBatch, Release

Floats = npt.NDArray[np.float64]

VERSION = 3
"""Version of the output; increased when the code changes it."""

MIN_PAPERS, MAX_PAPERS = 200, 500_000_000
"""Minimum and maximum number of papers."""

_SHARES = np.array([1.6, 12, 2.4, 10, 9, 2.6, 5, 1.8, 1.8, 2.4, 1.8, 6, 6, 19, 1.2, 9, 2.4, 4.4, 2.8])  # of MAG_FIELDS
_GROWTH, _FIRST_YEAR, _END = 0.07, 1970, 2020.6  # dates grow exponentially, at this rate a year
_FIELD, _SUBJECTS, _SUBJECT = 600, 10, 400  # words of a field, subjects of a field, words of a subject
_PAPER_WORDS, _COINED = 20, 2  # words of its topic that a paper uses, and words that it coins
_TITLE, _ABSTRACT = (0.2, 0.15, 0.1, 0.35, 0.2), (0.4, 0.2, 0.08, 0.16, 0.16)
"""Shares of function, general, field, paper and coined words."""

_FUNCTION = (
    "the of and in to a is with for that by this was on are as from we were be at an it which or can has have these "
    "not between been their than also its both but when more all may our into such some during through after"
)
_GENERAL_ENGLISH = (
    "results study model data method analysis system time based high two using used new approach different significant "
    "effect process information number level large low research show groups development function present problem "
    "control structure proposed factors theory rate response small performance found test increased order"
)
FUNCTION_WORDS, GENERAL_WORDS = _FUNCTION.split(), _GENERAL_ENGLISH.split()
"""Words by falling frequency; random words follow the general words."""
_STOCK_TITLES = ("Editorial", "Introduction", "Book reviews", "Correction", "Abstracts", "Index", "Preface", "Obituary")
_ONSETS = (*"bcdfghjklmnprstvwz", "br", "ch", "cr", "dr", "gl", "ph", "pl", "sh", "st", "th", "tr")
_SYLLABLES = tuple(onset + vowel for onset in _ONSETS for vowel in (*"aeiou", "io", "ea"))
_ENDINGS = (*(s + coda for s in _SYLLABLES for coda in ("", "n", "r", "l", "x", "nd")), "n", "rt", "k", "dé")

_FORMS, _GENERAL = 4, 6_000
_GENERAL_START = len(FUNCTION_WORDS)
_FIELD_START = _GENERAL_START + _GENERAL
_SUBJECT_START = _FIELD_START + _FIELD * len(MAG_FIELDS)
_COINED_START = _SUBJECT_START + _SUBJECT * _SUBJECTS * len(MAG_FIELDS)


@dataclass(frozen=True)
class Synthetic(Release, options.Synthetic):
    """A synthetic release of :data:`MIN_PAPERS` to :data:`MAX_PAPERS` papers."""

    source = "synthetic"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not MIN_PAPERS <= self.papers <= MAX_PAPERS:
            limits = f"{MIN_PAPERS} to {MAX_PAPERS:,}"
            raise InputError(f"a synthetic release must have {limits} papers, got {self.papers:,}", "Change --papers")

    @property
    def units(self) -> int:
        """Number of record batches, each of which is drawn by itself."""
        return -(-self.papers // BATCH_ROWS)

    def identity(self) -> Mapping[str, Any]:
        """Return the generator's version and settings."""
        return {"version": VERSION, "papers": self.papers, "seed": self.seed}

    def parts(self) -> Sequence[str]:
        """Return the parts: one unit each in a release of up to 16 units, about eight units in a larger one."""
        count = min(self.units, max(16, -(-self.units // 8)))
        return [f"{number:05d}-of-{count:05d}" for number in range(count)]

    def units_of(self, part: str) -> range:
        """Return the numbers of the units of one part."""
        index, _, count = part.partition("-of-")
        return range(*(self.units * edge // int(count) for edge in (int(index), int(index) + 1)))

    def read(self, part: str) -> Iterator[PaperBatch]:
        """Yield the papers of one part, one batch per unit."""
        for unit in self.units_of(part):
            papers = make_unit(self, unit)
            yield PaperBatch(papers, read=papers.num_rows)


def make_unit(release: Synthetic, number: int) -> pa.RecordBatch:
    """Return the papers of one unit of a release, in order of topic and date, in schema :data:`RAW_PAPERS`."""
    rng = generator(release.seed, f"synthetic {VERSION} {release.papers}", number)
    start, end = (release.papers * edge // release.units for edge in (number, number + 1))
    n = end - start
    weights = _SHARES / _SHARES.sum()
    topics = np.maximum(np.rint(weights * n / 150), 1).astype(np.int64)
    field_of = np.repeat(np.arange(len(MAG_FIELDS)), topics)
    topic = np.sort(np.searchsorted(np.cumsum((weights / topics)[field_of])[:-1], rng.random(n)))
    date = rng.random(n)
    date = date[np.lexsort((date, topic))]

    citing, cited = _cite(rng, release.papers, topic, date, np.cumsum(topics), field_of)
    titles, abstracts = _texts(rng, release.seed, topic, field_of, offsets_of(citing, n), cited)
    is_listed = (rng.random(n) >= 0.23)[citing]  # others have no references
    citing, cited = citing[is_listed], cited[is_listed]
    ids = _ids(release, start + np.arange(n))
    inside = cited < n
    cited_ids = np.where(inside, ids[np.minimum(cited, n - 1)], _ids(release, release.papers + cited - n))
    oldest = np.exp(_GROWTH * (_FIRST_YEAR - _END))
    years = np.maximum(np.floor(_END + np.log(oldest + date * (1 - oldest)) / _GROWTH), _FIRST_YEAR)
    references = pa.array(cited_ids[np.lexsort((cited_ids, citing))])
    arrays = [
        pa.array(ids).cast(pa.large_string()),
        titles.cast(pa.large_string()),
        abstracts.cast(pa.large_string()),
        pa.array(np.where(rng.random(n) < 0.015, NO_YEAR, years).astype(np.int16)),
        pa.array(_masks(rng, field_of[topic])),
        pa.LargeListArray.from_arrays(offsets_of(citing, n), references, type=RAW_PAPERS.field("outbound").type),
        pa.array(np.bincount(cited[inside], minlength=n).astype(np.int32)),
        pa.array(np.zeros(n, np.uint64)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_PAPERS)


def _ids(release: Synthetic, rows: Ints) -> npt.NDArray[np.uint64]:
    """Return the ids of rows, in no order: a bijection on the smallest power of two >= 16 times the papers."""
    bits = (16 * release.papers - 1).bit_length()
    mask, half = np.uint64((1 << bits) - 1), np.uint64(bits // 2)
    ids = rows.astype(np.uint64)
    for factor in generator(release.seed, "synthetic ids").integers(1 << 40, size=3, dtype=np.uint64):
        ids = (ids * (factor | np.uint64(1))) & mask
        ids ^= ids >> half
    return ids + np.uint64(1)


def _cite(
    rng: np.random.Generator, papers: int, topic: Ints, date: Floats, field_ends: Ints, field_of: Ints
) -> tuple[Ints, Ints]:
    """Return the citing and the cited row of each reference, sorted; cited rows >= ``n`` are not in the release.

    About 50 references are drawn for a paper; repeated and failed draws are dropped.
    """
    n = len(topic)
    counts = np.clip(np.rint(50 * np.exp(0.45 * rng.standard_normal(n))), 1, 200).astype(np.int64)
    citing = np.repeat(np.arange(n), counts)
    topics = topic[citing]
    kind, uniform = rng.random((2, len(citing)))
    now = np.where(kind > 0.996, 1.0, date[citing])  # a few cite papers of any date
    field_starts = np.concatenate([[0], field_ends])[field_of[topics]]
    near = field_starts + (uniform * (field_ends[field_of[topics]] - field_starts)).astype(np.int64)
    anywhere = (uniform * len(field_of)).astype(np.int64)
    target = np.select([kind < 0.03, kind < 0.03 + 0.08], [anywhere, near], topics)

    # Rows are in order of topic and date, so the papers of a topic in a period are a range of rows.
    position = topic + date
    since = now * np.exp(-_GROWTH * 25.0 * rng.exponential(size=len(citing)))  # a mean age of 25 years
    low, high = np.searchsorted(position, target + since), np.searchsorted(position, target + now)
    popularity = np.cumsum(np.minimum((1 - rng.random(n)) ** (-1 / 1.1), 500.0))  # Pareto, cut off
    mass = np.concatenate([[0.0], popularity])
    mass_drawn = mass[low] + rng.random(len(citing)) * (mass[high] - mass[low])
    cited = np.clip(np.searchsorted(popularity, mass_drawn, side="right"), low, high - 1)

    absent = rng.random(len(citing)) < 0.1
    cited = np.where(absent, n + rng.integers(papers // 2, size=len(citing)), cited)
    rows = n + papers // 2
    distinct = np.unique((citing * rows + cited)[absent | (low < high) & (cited != citing)])
    return distinct // rows, distinct % rows


def _masks(rng: np.random.Generator, main: Ints) -> npt.NDArray[np.uint32]:
    """Return the bit masks of the fields that the release lists: the main one, further ones, or none."""
    second, third = rng.integers(len(MAG_FIELDS), size=(len(main), 2)).T
    several = rng.random(len(main))
    has_second = (several < 0.075) & (second != main)
    mask = 1 << main | has_second << second | (has_second & (several < 0.005)) << third
    return np.where(rng.random(len(main)) < 0.05, 0, mask).astype(np.uint32)


def _texts(
    rng: np.random.Generator, seed: int, topic: Ints, field_of: Ints, indptr: Ints, cited: Ints
) -> tuple[pa.StringArray, pa.StringArray]:
    """Return the titles and the abstracts."""
    n = len(topic)
    subjects = rng.integers(_SUBJECTS, size=(len(field_of), 3)) + _SUBJECTS * field_of[:, None]
    subjects[:, 2] = rng.integers(_SUBJECTS * len(MAG_FIELDS), size=len(field_of))
    subject = subjects[topic[:, None], rng.integers(3, size=(n, _PAPER_WORDS))]
    paper_words = _SUBJECT_START + subject * _SUBJECT + _zipf(rng.random((n, _PAPER_WORDS)), _SUBJECT)
    words = pa.concat_arrays([_vocabulary(seed), _forms(_random_words(rng, n * _COINED, 3))])
    references = np.diff(indptr)

    def write(lengths: Ints, classes: Sequence[float], stops: float) -> pa.StringArray:
        owner = np.repeat(np.arange(n), lengths)
        kind, pick, reference_pick, stop = rng.random((4, len(owner)))
        source = np.append(cited, n)[indptr[owner] + (reference_pick * references[owner]).astype(np.int64)]
        source = np.where((source < n) & (reference_pick > 0.2), source, owner)  # who coined the word, if it is one
        word = np.select(
            list(kind < np.cumsum(classes)[:-1, None]),
            [
                _zipf(pick, len(FUNCTION_WORDS)),
                _GENERAL_START + _zipf(pick, _GENERAL),
                _FIELD_START + field_of[topic[owner]] * _FIELD + _zipf(pick, _FIELD),
                paper_words[owner, _zipf(pick, _PAPER_WORDS)],
            ],
            _COINED_START + source * _COINED + (pick * _COINED).astype(np.int64),
        )
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        filled = lengths > 0
        ends = stop < stops
        ends[offsets[1:][filled] - 1] = stops > 0
        starts = np.concatenate([[True], ends[:-1]])
        starts[offsets[:-1][filled]] = True
        tokens = words.take(pa.array(_FORMS * word + starts + 2 * ends))
        return pc.binary_join(pa.LargeListArray.from_arrays(offsets, tokens), " ")

    titles = write(_lengths(rng, n, 9.5, 0.4, 3, 30), _TITLE, 0)
    lengths = _lengths(rng, n, 148, 0.45, 18, 700)
    kind = rng.random(n)
    lengths[kind < 0.175] = 2
    lengths[kind < 0.17] = 0
    # Some titles are the one before, with or without a full stop, a stock title, or empty.
    choice = pa.array(np.searchsorted(np.cumsum([0.003, 0.003, 0.002, 0.001]), rng.random(n), side="right"))
    before = titles.take(pa.array(np.maximum(np.arange(n) - 1, 0)))
    stock = pa.array(_STOCK_TITLES).take(pa.array(rng.integers(len(_STOCK_TITLES), size=n)))
    titles = pc.choose(choice, before, _join(before, "."), stock, "", titles)
    return titles, write(lengths, _ABSTRACT, 1 / 14)


def _lengths(rng: np.random.Generator, n: int, median: float, deviation: float, low: int, high: int) -> Ints:
    return np.clip(np.rint(median * np.exp(deviation * rng.standard_normal(n))), low, high).astype(np.int64)


@lru_cache(maxsize=2)
def _vocabulary(seed: int) -> pa.StringArray:
    """Return all forms of the words that all units share."""
    english = FUNCTION_WORDS + GENERAL_WORDS
    made_up = _random_words(generator(seed, "synthetic words"), _COINED_START - len(english), 2)
    return _forms(pa.concat_arrays([pa.array(english), made_up]))


def _random_words(rng: np.random.Generator, count: int, syllables: int) -> pa.StringArray:
    """Return random words of ``syllables`` syllables and an ending, which may be one more syllable."""
    lists = [*[_SYLLABLES] * syllables, _ENDINGS]
    return _join(*(pa.array(texts).take(pa.array(rng.integers(len(texts), size=count))) for texts in lists))


def _forms(words: pa.StringArray) -> pa.StringArray:
    """Return the forms of each word: unchanged, capitalised, with a full stop, both."""
    capitalised = pc.utf8_capitalize(words)
    forms = pa.concat_arrays([words, capitalised, _join(words, "."), _join(capitalised, ".")])
    return forms.take(pa.array(np.arange(len(forms)).reshape(_FORMS, -1).T.reshape(-1)))


def _join(*columns: Any) -> Any:
    return pc.binary_join_element_wise(*columns, "")


def _zipf(uniform: Floats, n: int) -> Ints:
    """Return ranks below ``n``, int64; the probability of rank r is about proportional to 1 / (r + 3)."""
    return np.minimum(2.5 * ((1 + n / 2.5) ** uniform - 1), n - 1).astype(np.int64)
