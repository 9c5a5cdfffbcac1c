"""Where views are kept, a file for each store; `store.py` is the contract."""
