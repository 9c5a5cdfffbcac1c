"""Changes as something to iterate over, without any broker of one's own.

    for change in headrace.changes("postgresql://…", tables=["public.orders"]):
        print(change.op, change.table, change.key, change.after)

`opening.py` is what users call; `stream.py` iterates, `row_change.py` is one change, `token.py` a place to go on from.
What is read: `databases.py` with `kinds.py`, `topic.py`, `view.py`.
"""

from headrace.connect.changes.opening import changes
from headrace.connect.changes.row_change import Choice, Mark, Marks, RowChange
from headrace.connect.changes.stream import Changes, Portion, Reader
from headrace.connect.errors import BadToken, PositionLost

__all__ = [
    "BadToken",
    "Changes",
    "Choice",
    "Mark",
    "Marks",
    "Portion",
    "PositionLost",
    "Reader",
    "RowChange",
    "changes",
]
