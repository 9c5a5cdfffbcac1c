"""Groups of the share protocol (KIP-932): who is a member, and which partitions each is to fetch from.

A partition may be assigned to several members, and nobody gives up anything before another has it, so a member has its
target at once. What becomes of the records of a partition is decided in `coordinator/share/`. `group.py` is a group as
its records in `__consumer_offsets` tell it, `kind.py` the entrance.
"""
