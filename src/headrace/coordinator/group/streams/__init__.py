"""Streams groups (KIP-1071): Kafka Streams' applications, whose tasks the broker assigns.

`topology.py` is what an application consists of and which topics are made for it, `tasks.py` what its members share and
who gets what, `member.py` a member and its next step, `group.py` a group as its records tell it, `heartbeat.py` what
follows from a member's heartbeat, `kind.py` all groups of a partition. `formats.py` are their records in Kafka's
formats; `facts.py` makes and reads them.

What always holds: an active task has one owner, the member that has it or is still giving it up, and a process has no
task twice, in whatever role; nobody is assigned anything while a topic of the application is missing.
"""
