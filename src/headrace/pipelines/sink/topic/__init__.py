"""`format("headrace")`, the writing side: rows to a topic, exactly once, in two phases.

Every task writes in a transaction of its own and hands the driver its coordinates, still open. When all tasks of a
batch are done the driver writes down its decision, in one record of a compacted topic, and only then commits them all.
After a crash the record tells what to do: a batch that was decided is committed to its end and not written again; one
that was not is written again, and what is left of it is aborted. So a reader in `read_committed` sees every result
once.

`options` checks what the user wrote, `outgoing` turns Arrow batches into record batches and produces them, `decisions`
keeps the record, `phases` is the order of things, and `writers` are what Spark calls.
"""
