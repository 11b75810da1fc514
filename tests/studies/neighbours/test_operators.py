"""The 32 classes on the example of the paper's table 7, and their properties on any text."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.encode.aspire import split_sentences
from pipeline.studies.neighbours.operators import CATEGORIES, CLASSES, Paper
from pipeline.studies.neighbours.tagging import NOUN, Words, is_english, tag, tag_paper, tokens

TITLE = "Source Code Embeddings from Language Models"
FIRST, SECOND, THIRD = (
    "Contextual embeddings are common in NLP.",
    "We introduce a representation for computer programs based on language models.",
    "We train deep robust embeddings using pytorch.",
)
ABSTRACT = f"{FIRST} {SECOND} {THIRD}"

# Beside the paper's example: adjectives and phrases of its first sentence are found (it keeps them in three classes), a
# phrase is as long as possible ("deep robust embeddings"), and no space is put before a full stop.
TITLES = {
    "TDelADJ_A": TITLE,
    "TDelNN_A": "from",
    "TDelVB_A": TITLE,
    "TDelDT_A": TITLE,
    "TDelNN": "from",
    "TNNU_A": "SOURCE CODE EMBEDDINGS from LANGUAGE MODELS",
    "TNonNNU_A": "Source Code Embeddings FROM Language Models",
    "TRepNNA_A": f"{TITLE} embeddings NLP representation computer",
}
ABSTRACTS = {
    "TDelNN": "",
    "T_ARot": f"{SECOND} {THIRD} {FIRST}",
    "T_ASortAsc": f"{FIRST} {THIRD} {SECOND}",
    "T_ASortDesc": f"{SECOND} {THIRD} {FIRST}",
    "T_ADelADJ": f"embeddings are in NLP. {SECOND} We train embeddings using pytorch.",
    "T_ADelNN": "Contextual are common in . We introduce a for based on . We train deep robust using .",
    "T_ADelVB": "Contextual embeddings common in NLP. We a representation for computer programs on language models. "
    "We deep robust embeddings pytorch.",
    "T_ADelADV": ABSTRACT,
    "T_ADelPR": ABSTRACT.replace("We ", ""),
    "T_ADelDT": ABSTRACT.replace(" a ", " "),
    "T_ADelNum": ABSTRACT,
    "T_ADelNNPH": "are common in NLP. We introduce a representation for based on . We train using pytorch.",
    "T_ADelTopNNPH": f"{FIRST} We introduce a representation for based on . {THIRD}",
    "T_ADelQ1": f"{SECOND} {THIRD}",
    "T_ADelQ2": f"{FIRST} {THIRD}",
    "T_ADelQ3": f"{FIRST} {SECOND}",
    "T_ANNU": "Contextual EMBEDDINGS are common in NLP. We introduce a REPRESENTATION for COMPUTER PROGRAMS based on "
    "LANGUAGE MODELS. We train deep robust EMBEDDINGS using PYTORCH.",
    "T_ANonNNU": "CONTEXTUAL embeddings ARE COMMON IN NLP. WE INTRODUCE A representation FOR computer programs BASED "
    "ON language models. WE TRAIN DEEP ROBUST embeddings USING pytorch.",
    "T_ADelNonNNs": "embeddings NLP representation computer programs language models embeddings pytorch",
    "T_ARepADJ": f"Contextual embeddings are individual in NLP. {SECOND} We train shallow frail embeddings "
    "using pytorch.",
}
RANDOM = {"T_AShuff", "T_ADelRand", "T_A_DelNNChar", "TRepNNT_A", "T_A_WS"}

WORDS = st.sampled_from(
    ["the", "deep", "model", "We", "train", "quickly", "3.5", "12", "networks", "(", ")", "well-known"]
)
SENTENCES = st.lists(st.lists(WORDS, min_size=1, max_size=7).map(lambda words: f"The {' '.join(words)}."), max_size=6)
SEEDS = st.integers(0, 1_000)
QUICK = settings(max_examples=40)
"""The tagger loads its model in the first example."""
WAYS = ("Asc", "Desc")


def paper(title: str, abstract: str, top: set[str] | None = None) -> Paper:
    return Paper(Words(title, tag(title)), Words(abstract, tag(abstract)), top or set())


def make(name: str, of: Paper, seed: int = 13, paper_id: str = "1") -> tuple[str, str]:
    return tuple(CLASSES[name].neighbour(of, paper_id, seed))


@pytest.mark.parametrize("name", TITLES | ABSTRACTS)
def test_the_papers_example(name: str) -> None:
    example = paper(TITLE, ABSTRACT, {"computer programs", "language models"})
    assert make(name, example) == (TITLES.get(name, TITLE), ABSTRACTS.get(name, ABSTRACT))


def test_classes_and_what_they_leave() -> None:
    sizes = {"LL-HS": 5, "LO-HS": 7, "LL-PS": 4, "LO-PS": 11, "LO-DS": 5}
    assert Counter(row.category for row in CLASSES.values()) == sizes
    assert set(sizes) == set(CATEGORIES)
    assert set(CLASSES) == set(TITLES) | set(ABSTRACTS) | RANDOM
    made = {name: make(name, paper(TITLE, ABSTRACT)) for name in RANDOM}
    assert {name for name in RANDOM if made[name][0] != TITLE} == {"T_A_DelNNChar", "TRepNNT_A", "T_A_WS"}
    assert {name for name in RANDOM if made[name][1] == ABSTRACT} == {"TRepNNT_A"}


@given(SENTENCES, SEEDS)
@QUICK
def test_sentences_are_moved_or_left_out_whole(sentences: list[str], seed: int) -> None:
    of = paper(TITLE, " ".join(sentences))
    for name in ("T_ARot", "T_AShuff", "T_ASortAsc", "T_ASortDesc"):
        assert Counter(split_sentences(make(name, of, seed)[1])) == Counter(sentences)
    rising, falling = ([len(tokens(text)) for text in split_sentences(make(f"T_ASort{way}", of)[1])] for way in WAYS)
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    left = [split_sentences(make(f"T_ADelQ{third}", of)[1]) for third in (1, 2, 3)]
    if len(sentences) < 3:
        assert left == [sentences] * 3
    else:
        size = len(sentences) // 3
        assert left == [sentences[: part * size] + sentences[(part + 1) * size :] for part in range(3)]


@given(SENTENCES, SEEDS)
@QUICK
def test_random_edits(sentences: list[str], seed: int) -> None:
    of = paper(TITLE, " ".join(sentences))
    words = [token for token in of.abstract.tokens if token[0].isalnum()]
    kept = [token for token in tokens(make("T_ADelRand", of, seed)[1]) if token[0].isalnum()]
    assert len(kept) == len(words) - 3 * len(words) // 10
    assert not Counter(kept) - Counter(words)

    wide = make("T_A_WS", of, seed)
    assert [text.split() for text in wide] == [text.split() for text in of.text]
    for text, before in zip(wide, of.text, strict=True):
        runs = [len(run) for run in re.findall(" +", text)]
        assert sum(run > 1 for run in runs) == before.count(" ") // 2
        assert max(runs) <= 5 if runs else not before.count(" ")

    title, _ = make("TRepNNT_A", of, seed)
    (added,) = (Counter(title.split()) - Counter(TITLE.split())).items()
    assert added[1] == 1
    assert f"{added[0]} {added[0]}" in title


@given(SEEDS)
@QUICK
def test_characters_are_deleted_from_nouns_of_four_letters_or_more(seed: int) -> None:
    of = paper(TITLE, ABSTRACT)
    for before, after in zip((of.title, of.abstract), make("T_A_DelNNChar", of, seed), strict=True):
        for word, letter, found in zip(before.tokens, before.tags, tokens(after), strict=True):
            gone = 0 if letter != NOUN or len(word) < 4 else 1 if len(word) <= 5 else 2
            assert len(found) == len(word) - gone
            rest = iter(word)
            assert all(character in rest for character in found), "the letters left are in order"


def test_random_choices_depend_on_seed_paper_and_class_alone() -> None:
    of = paper(TITLE, ABSTRACT)
    for name in RANDOM:
        made = {(seed, paper_id): make(name, of, seed, paper_id) for seed in range(4) for paper_id in "abcd"}
        assert made == {key: make(name, of, *key) for key in reversed(made)}
        assert len({made[seed, "a"] for seed in range(4)}) > 1
        assert len({made[0, paper_id] for paper_id in "abcd"}) > 1


@pytest.mark.parametrize(
    ("title", "abstract", "unchanged"),
    [
        ("Transformers", "The end.", {"T_ARot", "T_AShuff", "T_ADelQ1", "T_ADelQ3", "T_ADelNum", "TNonNNU_A"}),
        ("On it", "It is.", {"TDelNN_A", "TRepNNT_A", "TRepNNA_A", "T_ADelNN", "T_ARepADJ", "TNNU_A"}),
        ("", "", set(CLASSES)),
        ("...", "?", set(CLASSES) - {"TDelNN", "T_ADelNonNNs"}),
    ],
)
def test_a_class_can_leave_a_paper_unchanged(title: str, abstract: str, unchanged: set[str]) -> None:
    assert unchanged <= {name for name in CLASSES if make(name, paper(title, abstract)) == (title, abstract)}


FEW, MANY = "Characteristically incomprehensible generalisations.", "It is as we say it is."
PHRASES = "Neural networks beat linear models. Big data help neural networks."


@pytest.mark.parametrize(
    ("name", "title", "abstract", "expected"),
    [
        pytest.param("T_ASortAsc", "T", f"{MANY} {FEW}", f"{FEW} {MANY}", id="sorted by words, not characters"),
        pytest.param("T_ASortDesc", "T", f"{FEW} {MANY}", f"{MANY} {FEW}", id="most words first"),
        pytest.param("T_ADelTopNNPH", "T", PHRASES, "beat linear models. Big data help .", id="phrases everywhere"),
        pytest.param("T_ARepADJ", "T", "Deep models are good.", "Shallow models are bad.", id="antonyms keep capitals"),
    ],
)
def test_abstracts_are_edited(name: str, title: str, abstract: str, expected: str) -> None:
    assert make(name, paper(title, abstract, {"neural networks"}))[1] == expected


@pytest.mark.parametrize("count", [0, 3, 6])
def test_halves_are_rounded_down(count: int) -> None:
    of = paper("A model", " ".join(["graph", "market", "cell", "parser", "proof", "signal", "neuron"][:count]))
    assert len(make("TRepNNA_A", of)[0].split()) == 2 + count // 2


@pytest.mark.parametrize(
    ("abstract", "english"),
    [
        (ABSTRACT, True),
        ("我们介绍一种方法。", False),
        ("", False),
    ],
)
def test_only_english_abstracts_are_tagged(abstract: str, english: bool) -> None:
    assert is_english(abstract) == english
    assert (tag_paper(paper(TITLE, abstract).text) is not None) == english


@pytest.mark.parametrize("text", ["", "我们" * 2_000, "x" * 5_000, "\x00 \\ $ % ^", "١٢٣ 12 3.5"])
def test_every_token_has_a_tag(text: str) -> None:
    assert len(tag(text)) == len(tokens(text))
