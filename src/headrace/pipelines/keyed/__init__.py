"""Keyed state by the bucket: one call serves thousands of keys over columns, where Spark's own way calls once a key.

`operator` says what an operator is, `apply` makes a function `DataFrame -> DataFrame` of one, and `inspect` shows what
a checkpoint holds.
"""
