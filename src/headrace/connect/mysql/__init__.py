"""Changes of a MariaDB or MySQL database, from its binary log.

`events.py`, `table_maps.py`, `rows.py`, `values.py` and `gtid.py` (pure) understand the
log; `stream.py` receives it; `shape.py`, `ddl.py` and `history.py` know what the tables looked like at any place in it;
`snapshot.py` reads what is there already, `chunks.py` tables again beside the log, between marks in `signal_table.py`;
`source.py` puts all behind the contract. What differs between the two databases is in `flavor.py` and `gtid.py`.

What always holds: the log alone decides what comes and in which order; a table's shape is the one that it had where the
change stands in the log, not the one that it has now; what the log does not hold in full is refused, never guessed.
"""

from headrace.connect.mysql.history import HistoryRecord, MemoryHistory, SchemaHistory, TopicHistory, rebuild_history
from headrace.connect.mysql.settings import MysqlSettings
from headrace.connect.mysql.source import MysqlSource

__all__ = [
    "HistoryRecord",
    "MemoryHistory",
    "MysqlSettings",
    "MysqlSource",
    "SchemaHistory",
    "TopicHistory",
    "rebuild_history",
]
