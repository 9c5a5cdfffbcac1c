"""Changes of a PostgreSQL database by triggers, for databases without logical decoding.

`statements.py` (pure) is what is put into the database, `shapes.py` reads a row's text, `capture.py` keeps
triggers and tables in step and decides up to where changes are complete, `source.py` puts them behind the
contract.

The order. A change's position comes from a sequence, in the moment of the change. So the positions of one key are in
the order in which it was changed, because a row is locked until its transaction ends; but positions of different
transactions are mixed, a transaction with a low position may commit last, and who reads "everything above the last
position" misses it: the classic gap. Reading in the order of transaction ids is no better, for an id is given at a
transaction's first write, not at its commit: a transaction with a low id may change a row after one with a higher id
has.

So it is done in three steps. A *fence* is taken: the last position that was given, and then a new transaction id.
Whoever holds a position up to the fence has a lower id than that. Once every transaction below that id has ended
(`pg_snapshot_xmin`), everything up to the fence is there and nothing will be added. Then whole transactions are handed
out, ordered by their last position. If one transaction changed a row after another had, the other had ended by then,
and its last position is lower; so the order agrees with the commits for every row, and every transaction is in one
piece. For transactions that have no row in common the order may differ from that of their commits; nothing in the
database tells it. A transaction that stays open holds up what was written after it began.

A partitioned table is captured as one. What fires no trigger (TRUNCATE of one of its partitions, values that ALTER
TABLE writes, triggers that were put to sleep for a while) is found in the catalog, as for captures by the log.
"""

from headrace.connect.triggers.capture import uninstall
from headrace.connect.triggers.settings import TriggerSettings
from headrace.connect.triggers.source import TriggerSource

__all__ = ["TriggerSettings", "TriggerSource", "uninstall"]
