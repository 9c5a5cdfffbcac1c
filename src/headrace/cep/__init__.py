"""Complex event processing, pure: patterns over streams of rows, the automaton they compile into, and a plain matcher.

    pattern.py  match_recognize.py     the two languages, Python and SQL; `written.py` what is written in Python,
                                       `parsing.py` and `reading.py` conditions, `row_pattern.py` PATTERN
    tree.py                            what both are read into
    automaton.py  compiling.py         what the tree compiles into; `explaining.py` for people
    checking.py                        what is refused before anything runs
    expressions.py                     conditions, with SQL's three truth values
    evaluation.py  values.py           conditions of one row after the other
    assembling.py  operations.py       conditions as code; `measures.py` what MEASURES show
    kinds.py  lanes.py                 the values that code reads, as numbers
    rowwise.py  spark_sql.py           what looks at one row only: over batches, and as texts for Spark
    program.py  stepping.py            the automaton at work: one key's partial matches (`partial.py`), row by row
    matcher.py                         events of all keys, put in order
    match.py                           events and matches
    columnar.py  shaping.py  loops/    the same for many keys at once, over arrays, compiled
    kept.py  found.py                  what is kept of keys between calls, and what a call gives
    spelling.py  stored.py             patterns as texts, and as records of a topic
    pictures/                          automata drawn

What always holds: the matches are those of the definition (`tests/property/cep_reference.py`), whichever engine found
them; nothing here reads a clock, a file or a socket, and time is what events say.
"""

from typing import TYPE_CHECKING

from headrace.extras import export_lazily

if TYPE_CHECKING:
    from headrace.cep.errors import CepError, InvalidEvent, InvalidPattern, TooManyPartialMatches
    from headrace.cep.match import Event, Match
    from headrace.cep.matcher import Matcher
    from headrace.cep.pattern import Pattern
    from headrace.cep.spelling import read_pattern, text_of
    from headrace.cep.tree import Contiguity

__all__ = [
    "CepError", "Contiguity", "Event", "InvalidEvent", "InvalidPattern", "Match", "Matcher", "Pattern",
    "TooManyPartialMatches", "read_pattern", "text_of",
]  # fmt: skip

_HOMES = {
    "errors": ("CepError", "InvalidEvent", "InvalidPattern", "TooManyPartialMatches"),
    "match": ("Event", "Match"),
    "matcher": ("Matcher",),
    "pattern": ("Pattern",),
    "spelling": ("read_pattern", "text_of"),
    "tree": ("Contiguity",),
}

__getattr__, __dir__ = export_lazily(
    __name__, {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names}
)
