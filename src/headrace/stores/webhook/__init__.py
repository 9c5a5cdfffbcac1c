"""Receivers of HTTP requests: `sender.py` posts one record."""
