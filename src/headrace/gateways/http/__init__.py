"""A gateway for programs and browsers that speak HTTP: produce, consume, and listen.

`app.py` is every path; what a body or a question says is read by pure modules (`record_form.py`, `cloud_events.py`,
`listening.py`, `socket_messages.py`, `rest_v2/forms.py`), and carried out by `producing.py`, `polling.py`, `feeds.py`,
`sockets.py` and `rest_v2/consumers.py`.
"""
