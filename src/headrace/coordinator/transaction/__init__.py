"""The transaction coordinator: who holds a transactional id, what is open under it, and how that ends (KIP-98).

`coordinator.py` is the way in. The shell asks it with an event of `events.py`, writes the decision's records with
`records.encode`, applies them, and carries out `WriteMarkers`; a transactional id's partition is `partition_for`.
"""
