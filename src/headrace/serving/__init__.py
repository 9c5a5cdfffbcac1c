"""Applications that answer HTTP, and who may use them: the dashboard, the views, the schemas.

`server.py` listens; `access.py` is how a server is reached and who its users are; `guard.py` stands before every
application and lets in; `sessions.py` is what it remembers, pure. Only `server.py` and `guard.py` need the packages of
the extra `dashboard`.
"""
