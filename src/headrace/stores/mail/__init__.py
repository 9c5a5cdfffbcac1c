"""Receivers of mails: `server.py` says which and lets us in, `sender.py` hands one mail in."""
