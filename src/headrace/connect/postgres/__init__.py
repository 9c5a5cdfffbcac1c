"""Changes of a PostgreSQL (14 to 18), read from its write-ahead log through `pgoutput`.

Pure: `decode` (messages to events, compiled for each relation), `tuples` (the compiler), `values`, `arrays` and `types`
(text to JSON and Python), `assembly` (streamed and prepared transactions put into commit order), `positions`.
Shells: `replication` (the COPY BOTH stream), `slot`, `publication`, `catalog`, `snapshot`, `incremental`; `source` puts
them together.
"""
