"""Groups of the classic protocol: the members assign the partitions themselves, the coordinator brings them together.

A group goes through phases: Empty → PreparingRebalance (members join; JoinGroup waits) → CompletingRebalance (the
leader assigns; SyncGroup waits) → Stable, and from the last two back to PreparingRebalance when somebody comes,
goes or changes. `state.py` is a group as a value, `rebalance.py` has the draft of a decision about it; the other files
are the phases.
"""
