"""`format("headrace")`, the reading side: topics as streaming or bounded DataFrames, columnar from the socket on.

`options` checks what the user wrote, `selection` finds partitions, `places` turns names of places into offsets,
`planning` (pure) shares out what is to be read, `columns` says what each column is, `reading` runs in the tasks, and
`stream` and `bounded` are what Spark calls. `datasource` registers it all.
"""
