"""One file per API that is more than a question to a coordinator, named as in `protocol/messages`.

A handler holds no state: it asks the runtime, and builds the answer. `registry.py` lists every API.
"""
