"""Changes of a SQLite database, captured by triggers into a table beside the user's own.

`statements.py` (pure) writes the triggers, `shape.py` says what a table looks like, `capture.py` puts triggers in place
and follows changes of shape, `snapshot.py` reads what is there already, `source.py` puts them behind the contract.

What always holds: SQLite has one writer at a time, so the order of the captured changes is the order of the commits;
a change and its capture are one transaction; values are stored as they are, with their storage class.
"""

from headrace.connect.sqlite.capture import Capture, uninstall
from headrace.connect.sqlite.connection import SqliteSettings
from headrace.connect.sqlite.source import SqliteSource

__all__ = ["Capture", "SqliteSettings", "SqliteSource", "uninstall"]
