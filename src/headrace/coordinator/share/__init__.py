"""Share groups' records (KIP-932): which are available, who has which, and which are finished.

`partition.py` is one partition of a topic as one group sees it, as runs of offsets in the same state. `coordinator.py`
is all of them and decides what follows from acknowledgements (`acknowledgement.py`), from locks that lapse, and from
changes of offsets. `records.py` are the records of `__share_group_state` as Kafka writes them. Who is in a group, and
which partitions a member is assigned, is decided in `coordinator/group/share/`.
"""
