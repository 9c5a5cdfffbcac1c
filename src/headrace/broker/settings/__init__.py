"""Kafka's settings for topics, listeners, groups and the broker: names, types, defaults, and what they mean here.

`setting.py` is what a setting is and how values are checked; each table has a file. What is in a table can be set and
is described to clients; what a single node has no use for is kept and shown, so that the tools which set it work, and
is marked as without effect. What a subscription to client metrics has stands beside it, in `broker/client_metrics.py`.
"""
