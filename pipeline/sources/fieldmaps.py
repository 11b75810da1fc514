"""Mappings from the releases' subjects to the 19 fields of the Microsoft Academic Graph (``mdcr show fields``).

Subjects that are not listed here are counted, and the paper gets no field from them.
"""

from __future__ import annotations

from pipeline.core.fields import MAG_FIELDS

FOLDED = {name.casefold(): name for name in MAG_FIELDS}
"""The 19 fields by lower-case name, since OpenAlex ("Computer science") and S2AG capitalise differently."""

S2_SOURCES = ("s2-fos-model", "external", "any")
"""Sources of fields of study in S2AG: Semantic Scholar's classifier, or the Microsoft Academic Graph (until 2021)."""

OPENALEX_FIELDS = {
    11: ("Agricultural and Biological Sciences", "Biology"),
    12: ("Arts and Humanities", "Art"),
    13: ("Biochemistry, Genetics and Molecular Biology", "Biology"),
    14: ("Business, Management and Accounting", "Business"),
    15: ("Chemical Engineering", "Engineering"),
    16: ("Chemistry", "Chemistry"),
    17: ("Computer Science", "Computer Science"),
    18: ("Decision Sciences", "Business"),
    19: ("Earth and Planetary Sciences", "Geology"),
    20: ("Economics, Econometrics and Finance", "Economics"),
    21: ("Energy", "Engineering"),
    22: ("Engineering", "Engineering"),
    23: ("Environmental Science", "Environmental Science"),
    24: ("Immunology and Microbiology", "Biology"),
    25: ("Materials Science", "Materials Science"),
    26: ("Mathematics", "Mathematics"),
    27: ("Medicine", "Medicine"),
    28: ("Neuroscience", "Biology"),
    29: ("Nursing", "Medicine"),
    30: ("Pharmacology, Toxicology and Pharmaceutics", "Medicine"),
    31: ("Physics and Astronomy", "Physics"),
    32: ("Psychology", "Psychology"),
    33: ("Social Sciences", "Sociology"),
    34: ("Veterinary", "Medicine"),
    35: ("Dentistry", "Medicine"),
    36: ("Health Professions", "Medicine"),
}
"""The 26 fields of OpenAlex topics by number: name, and our field."""

OPENALEX_SUBFIELDS = {
    1202: ("History", "History"),
    1207: ("History and Philosophy of Science", "Philosophy"),
    1211: ("Philosophy", "Philosophy"),
    1212: ("Religious studies", "Philosophy"),
    3305: ("Geography, Planning and Development", "Geography"),
    3320: ("Political Science and International Relations", "Political Science"),
}
"""Subfields of OpenAlex topics that are mapped before their field; without them four of the 19 would be empty."""

ARXIV_FIELDS = {
    **dict.fromkeys(("cs", "cmp-lg"), "Computer Science"),
    **dict.fromkeys(("math", "stat", "alg-geom", "dg-ga", "funct-an", "q-alg", "bayes-an"), "Mathematics"),
    **dict.fromkeys(("econ", "q-fin"), "Economics"),
    "q-bio": "Biology",
    "eess": "Engineering",
    "chem-ph": "Chemistry",
}
"""Archives of arXiv, also those of before 1998, and our field; all others are of Physics."""
