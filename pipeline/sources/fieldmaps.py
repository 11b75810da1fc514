"""How each release's own subjects become the 19 fields of the Microsoft Academic Graph; ``mdcr show fields`` prints it.

A subject that is not listed here is counted and gives the paper no field.
"""

from __future__ import annotations

from pipeline.core.fields import MAG_FIELDS

FOLDED = {name.casefold(): name for name in MAG_FIELDS}
"""The 19 fields by their names in lower case: OpenAlex ("Computer science") and S2AG have capitals of their own."""

S2_SOURCES = ("s2-fos-model", "external", "any")
"""Whose fields of study S2AG lists: Semantic Scholar's own classifier, or the Microsoft Academic Graph until 2021."""

S2_OTHERS = ("Agricultural and Food Sciences", "Education", "Law", "Linguistics")
"""Categories of S2AG that are none of the 19 and are only counted."""

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
"""The 26 fields of OpenAlex topics, by number: name, and the field it counts as."""

OPENALEX_SUBFIELDS = {
    1202: ("History", "History"),
    1207: ("History and Philosophy of Science", "Philosophy"),
    1211: ("Philosophy", "Philosophy"),
    1212: ("Religious studies", "Philosophy"),
    3305: ("Geography, Planning and Development", "Geography"),
    3320: ("Political Science and International Relations", "Political Science"),
}
"""Subfields of OpenAlex topics that say more than their field: without them four of the 19 would have no paper."""

OPENALEX_SOURCES = ("auto", "concepts", "topics")
"""Where a work's fields come from: level-0 concepts, the primary topic, or the topic only where no concept counts."""

MAPPINGS = {
    "S2AG category": [*((name, name) for name in MAG_FIELDS), *((name, "-") for name in S2_OTHERS)],
    "OpenAlex concept (level 0)": [(name.capitalize(), name) for name in MAG_FIELDS],
    "OpenAlex field (primary topic)": list(OPENALEX_FIELDS.values()),
    "OpenAlex subfield (before its field)": list(OPENALEX_SUBFIELDS.values()),
}
"""Every mapping, for printing: (subject of the release, field it counts as)."""
