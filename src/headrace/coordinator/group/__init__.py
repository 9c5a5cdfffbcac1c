"""The group coordinator: consumer groups, classic and of KIP-848, groups of Kafka Streams, and everybody's offsets.

`coordinator.py` is the entrance; `events.py` is what it can be told. `kinds.py` is the seam between it and the kinds of
groups, `classic/`, `consumer/` and `streams/`; `heartbeats.py` is what those kinds share whose members only beat.
`offsets/` serves groups of every kind, `description.py` what can be seen of them. `records.py` and `record_formats.py`
are the records of `__consumer_offsets` as Kafka writes them.
"""
