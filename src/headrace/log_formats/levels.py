"""How bad a line of a log says that it is: one set of names for the many in use, and where they stand in free text.

A level in free text is a word in capitals (`2026-11-18 12:00:00 ERROR …`), or in any letters where nothing else can be
meant: in brackets (`[warn]`), behind its name (`level=info`, `"severity": "Warning"`), before a colon (`error: …`), or
glog's first letter (`E1118 12:00:00.1 …`). The first that stands there counts.
"""

import re
from typing import Final

# From the least to the worst; the last eight are syslog's, whose numbers go the other way.
LEVELS: Final = ("trace", "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

# Every name in use, in lower case, and the one that is meant.
NAMES: Final = {
    **{level: level for level in LEVELS},
    **dict.fromkeys(("verbose", "finest", "finer"), "trace"),
    **dict.fromkeys(("dbg", "fine"), "debug"),
    **dict.fromkeys(("information", "informational", "inf"), "info"),
    **dict.fromkeys(("warn", "wrn"), "warning"),
    **dict.fromkeys(("err", "severe", "failure"), "error"),
    **dict.fromkeys(("crit", "fatal"), "critical"),
    **dict.fromkeys(("emerg", "panic"), "emergency"),
}
GLOG: Final = {"i": "info", "w": "warning", "e": "error", "f": "critical"}

_WORDS: Final = "|".join(sorted(NAMES, key=len, reverse=True))
# Words that prose has as well are levels only where a level has to stand.
_OWN: Final = [word for word in sorted(NAMES, key=len, reverse=True) if word not in ("fine", "failure", "information")]
_SURE: Final = "|".join(map(str.upper, _OWN))

# Read in the same way by Python and by Java, which Spark hands it to; one of the five groups is what was found.
PATTERN: Final = (
    f"(?:^|[^A-Za-z0-9_])(?:({_SURE})(?![A-Za-z0-9_])"
    f"|(?i:level|lvl|severity|loglevel)[\"']?[ ]?[=:][ ]?[\"']?((?i:{_WORDS}))(?![A-Za-z0-9_]))"
    f"|[\\[<(|][ ]*(?:[a-z0-9_]+:)?((?i:{_WORDS}))[ ]*[\\])>|:]"
    f"|(?:^|[ ])((?i:{'|'.join(_OWN)})):"
    "|^([IWEF])[0-9]{4} [0-9]{2}:"
)
_FOUND: Final = re.compile(PATTERN)


def level_of(text: str) -> str | None:
    """The level that a line of free text names, one of `LEVELS`; None if it names none."""
    found = _FOUND.search(text)
    if found is None:
        return None
    word = found[found.lastindex or 0].lower()
    return GLOG[word] if found.lastindex == 5 else NAMES[word]


def level_named(word: str) -> str | None:
    """The level that a word is a name of; None if it is none."""
    return NAMES.get(word.strip().lower())


def level_of_severity(severity: int) -> str:
    """The level of one of syslog's severities, 0 to 7."""
    return LEVELS[8 - severity]
