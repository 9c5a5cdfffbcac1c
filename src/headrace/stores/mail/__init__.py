"""Receivers of mails: `server.py` says which and lets us in, `replies.py` reads what it answers, in time, and
`sender.py` hands one mail in.
"""
