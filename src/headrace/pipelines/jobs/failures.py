"""What a failure says in one line, and whether trying again could help."""

import re

# Our own errors, raised in a worker, come back from Spark inside the text of another.
_OURS = re.compile(r"^headrace\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
_OURS_THAT_LAST = ("BadOperator", "BadOption", "BadSchema", "BadRecord", "BadState", "BadView", "DataLoss")
_REAL_TIME = re.compile(
    r"\[STREAMING_REAL_TIME_MODE\.[\w.]+\].*?(?:limitation: )(.*?\.)(?: To bypass|\s*SQLSTATE|$)", re.DOTALL
)
# What Spark finds when a query's state is of other keys or types, or of another step.
_CHANGED_STATE = re.compile(
    r"\[(STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE"
    r"|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA)\b"
)
# The classes of SQLSTATE for what is not supported and for what is wrong in a query.
_STATES_THAT_LAST = re.compile(r"SQLSTATE: (0A|42)")
# What a function of the user's raised on a worker: the frames that led there, then the exception and its message.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n((?:[ \t].*\n)+)(\w[\w.]*(?:: .*)?)$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_NOT_THE_USERS = re.compile(r"[/\\](?:pyspark|site-packages|dist-packages|headrace)[/\\]|pyspark\.zip|^<")
CHANGED_STATE = (
    "write the query as it was, or start anew with headrace pipeline reset, or build a new version with headrace "
    "pipeline rebuild"
)
_PACKAGE = re.compile(r"\borg\.apache\.spark(?:\.\w+)*\.(?=[A-Z])")


def sentence_of(error: BaseException) -> str:
    """What an error says, in one line: our own words, or what a user's function raised and where, or Spark's first."""
    text = str(error)
    if ours := _OURS.findall(text):
        return str(ours[-1][1])
    if changed := _CHANGED_STATE.search(text):
        return f"its state was kept by other steps than the query now has (Spark's {changed[1]}): {CHANGED_STATE}"
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
    if _CHANGED_STATE.search(text):
        return True
    return _STATES_THAT_LAST.search(text.split("=== Streaming Query ===")[0]) is not None
