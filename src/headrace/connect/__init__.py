"""Change data capture, and derived systems kept in step: databases to the log, and the log to other stores.

`source.py` is the contract of every source, `runtime.py` what runs one: it reads batches, has `envelope.py` write them
as Debezium would, in one of two forms (`json_form.py`, `avro/`), and stores records and position in one transaction.
`change.py` and `table.py` are the nouns, `table_snapshot.py` reads tables one after the other. A database has a folder
of its own (`postgres/`), and its driver is imported there alone. `changes.py` is the stream without any broker. Stores
are in `headrace.stores`.

What always holds: a source is acknowledged only after the broker has the records durably; records and position are
committed together or not at all; and the records of a key are in the order of the source's commits.
"""
