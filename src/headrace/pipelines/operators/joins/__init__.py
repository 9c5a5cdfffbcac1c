"""Joins of two streams of events: `join_streams`, by how near their times lie, and `join_windows`, by window.

`sides` checks what users say of both sides. `spark` puts a join on Spark's own operator or on keyed state, where
`interval` is the operator.
"""
