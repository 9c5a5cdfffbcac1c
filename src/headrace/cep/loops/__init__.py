"""The automaton stepped over arrays, compiled: the same as `stepping.py` does for a key, for all keys of a call.

    layout.py   what the columns of all arrays mean
    code.py     conditions: short programs over the values of rows; `instructions.py` what they are made of,
                `arithmetic.py` and `history.py` what these do
    rows.py     a row for the partial matches of a key
    runs.py     partial matches, and what time means for them
    matches.py  matches in their order, and what they skip
    paths.py    the rows of matches
    keys.py     all keys of a call

Everything is an array of `int64` with named columns: edges, runs, nodes (rows of partial matches, each with its parent,
so that those that began alike share them). Scalars that change stand in `counts`.

What always holds: a node's parent stands before it.
"""
