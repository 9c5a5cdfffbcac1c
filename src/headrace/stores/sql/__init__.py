"""What the stores that speak SQL share: statements, and the three faces over a database.

`statements.py` is text alone; `database.py` is what is asked of a database; `derived.py`, `batch.py` and `view.py` are
the faces, each with the order of things inside its one transaction.
"""
