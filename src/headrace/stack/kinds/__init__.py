"""Sections of `headrace.toml`, a file for each kind: its keys, what is wrong with them, and the processes it needs."""
