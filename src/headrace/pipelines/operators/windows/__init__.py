"""Windows: tumbling, hopping, sessions, sliding, each a function `DataFrame -> DataFrame` with its operator beside it.

`windowing` reads the keywords that all have and chooses between Spark's own windows and keyed state; `results` is what
the operators share. What Spark does well by itself is left to it: tumbling windows and sessions whose late rows are
dropped.
"""
