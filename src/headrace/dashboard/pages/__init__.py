"""The pages, one file each; `registry.py` lists them in the order of the menu."""
