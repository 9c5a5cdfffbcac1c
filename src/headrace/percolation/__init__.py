"""Search on streams, pure: queries are stored and documents flow past.

    tree.py         what a query means, and what the index is built on

What always holds: what a query matches is what `evaluate.py` says; nothing here reads a clock, a file or a socket.
"""
