"""Tables as changes: streams of rows that appear and disappear, which joins, groups and views put together.

`form` says what such a stream looks like. `table_changes` makes one out of a change topic, `join_tables` one out of
two. Everything downstream adds and subtracts, so that what is left at the end is what a query over the tables as they
are would say.
"""
