"""`format("headrace")`, the reading side: topics as streaming or bounded DataFrames, columnar from the socket on.

`options` checks what the user wrote, `offsets` finds partitions and where to begin, `planning` (pure) shares out what
is to be read, `columns` says what each column is, `reading` runs in the tasks and is `spark.read`, and `stream` is
`spark.readStream`. `datasource` registers it all.
"""
