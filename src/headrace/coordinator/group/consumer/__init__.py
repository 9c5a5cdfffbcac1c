"""Groups of the consumer protocol (KIP-848): the coordinator assigns, and members follow at their own pace.

A group has an epoch that grows with every change of its members, of what they want, or of the topics that they want.
For each epoch a target assignment is computed (`subscription`, `assignors`), and every member is led towards it by its
own heartbeats alone (`heartbeat`, `reconciliation`), so that nobody waits for anybody except for a partition that
somebody else still has. `state` is a group as its records tell it, `kind` the entrance.
"""
