"""Tables of databases, kept in step: PostgreSQL, MariaDB and SQLite, and DuckDB from `warehouse/`.

`sink.py` is the same for all of them: one transaction writes the rows and, into a table beside them, the place in the
log. `database.py` is what it asks of a database; a database has a file of its own. `values.py` says how the log's
values become those of a column.
"""
