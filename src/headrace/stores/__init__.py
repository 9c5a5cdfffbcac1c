"""Stores: one folder each, and on it up to three thin faces.

A store's folder holds how it is reached, its names and types, how rows are put and removed, and how a version that was
built beside takes its place. Its faces are modules of their own, each with one function of the store's name:

- `derived.py` keeps a table in step with a topic; the contract is `stores/derived.py`.
- `batch.py` is a sink for `foreachBatch`; the contract is `stores/batch.py`, and `frames.py` is what Spark brings.
- `view.py` keeps materialized views and answers questions; the contract is `stores/views/`.

`sql/` is what the engines that speak SQL share. What always holds: rows and the record of how far they reach are
written by one transaction, or a batch that is written again changes nothing. A driver is imported in its store's
folder alone, when the store is chosen.
"""
