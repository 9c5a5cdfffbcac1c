"""Redis kept in step: rows by key, or the keys of changed rows removed.

`script.py` is what runs inside Redis, `sink.py` what calls it.
"""
