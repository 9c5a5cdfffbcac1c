"""What a failure says in one line, and whether trying again could help."""

import re

# Our own errors, raised in a worker, come back from Spark inside the text of another.
_OURS = re.compile(r"^headrace\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
_OURS_THAT_LAST = ("BadOption", "BadSchema", "BadRecord", "BadView", "DataLoss")
_REAL_TIME = re.compile(
    r"\[STREAMING_REAL_TIME_MODE\.[\w.]+\].*?(?:limitation: )(.*?\.)(?: To bypass|\s*SQLSTATE|$)", re.DOTALL
)
# The classes of SQLSTATE for what is not supported and for what is wrong in a query.
_STATES_THAT_LAST = re.compile(r"SQLSTATE: (0A|42)")
# What a function of the user's raised on a worker: the frames that led there, then the exception and its message.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n((?:[ \t].*\n)+)(\w[\w.]*(?:: .*)?)$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_NOT_THE_USERS = re.compile(r"[/\\](?:pyspark|site-packages|dist-packages|headrace)[/\\]|pyspark\.zip|^<")
_PACKAGE = re.compile(r"\borg\.apache\.spark(?:\.\w+)*\.(?=[A-Z])")


def sentence_of(error: BaseException) -> str:
    """What an error says, in one line: our own words, or what a user's function raised and where, or Spark's first."""
    text = str(error)
    if ours := _OURS.findall(text):
        return str(ours[-1][1])
    if limit := _REAL_TIME.search(text):
        said = _PACKAGE.sub("", limit[1])
        return f"real-time mode cannot run this query, choose a trigger such as '500 ms': {said}"
    if raised := _RAISED.findall(text):
        return _with_place(*raised[-1])
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return first.split(" SQLSTATE:")[0]


def _with_place(frames: str, said: str) -> str:
    mine = [frame for frame in _FRAME.findall(frames) if not _NOT_THE_USERS.search(frame[0])]
    return f"{said} ({mine[-1][0]}:{mine[-1][1]}, in {mine[-1][2]})" if mine else said


def will_last(error: BaseException) -> bool:
    """Whether the same would happen at the next attempt: a query, an option or a record is wrong."""
    text = str(error)
    if ours := _OURS.findall(text):
        return ours[-1][0] in _OURS_THAT_LAST
    return _STATES_THAT_LAST.search(text.split("=== Streaming Query ===")[0]) is not None
