"""What the broker does for each API, a file for each family of them.

A handler holds no state: it asks the runtime, and builds the answer. `registry.py` lists every API.
"""
