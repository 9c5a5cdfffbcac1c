"""Receivers of HTTP requests: `sender.py` posts one record, `derived.py` each change of a topic."""
