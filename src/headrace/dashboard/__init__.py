"""The dashboard: pages that show a cluster as it is now, on any Kafka, and stay up to date by themselves.

One thread looks at the cluster every few seconds (`watch.py`) and leaves an immutable `State` behind: what was seen
(`snapshot.py`), how it went over the last minutes (`history.py`), what jobs and others report (`reports.py`), and what
a person should be told (`alerts.py`). Pages are functions of that state (`pages/`); `app.py` serves each as
HTML, as JSON under `/api`, and live: parts whose text has changed are sent as server-sent events (`stream.py`).
Records are read on demand, on the server (`search.py`).

What always holds: nothing is written unless the dashboard was started for it, and then only by a form that carries its
proof (`serving/guard.py`); what a page shows is escaped; histories, feeds and streams have an upper bound; a client
that does not read is let go; and no page waits for a broker that is away.
"""
