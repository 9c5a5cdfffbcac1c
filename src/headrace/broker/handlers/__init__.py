"""One file per API, named as in `protocol/messages`: whoever opens the folder sees what the broker can do.

A handler holds no state: it asks the runtime, and builds the answer. `registry.py` lists them all.
"""
