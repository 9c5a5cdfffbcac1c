"""The group coordinator: consumer groups of the classic protocol and of KIP-848, and everybody's committed offsets.

`coordinator.py` is the entrance: one `GroupCoordinator` for each partition of `__consumer_offsets`. `records.py` holds
the topic's records in Kafka's own formats.
"""
