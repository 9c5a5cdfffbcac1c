"""Webhooks of others into topics: `POST /github`, signed, a record, once.

    signatures.py   who signs how, and whether a request is signed so (pure); Standard Webhooks also sign
    secrets.py      secrets by file or environment, read again when a file changes
    settings.py     what `[gateways.NAME] kind = "webhook"` says, checked (pure)
    delivery.py     a request as a record: its id, its key, its headers (pure)
    memory.py       which ids were taken, for how long (pure)
    server.py       HTTP, and records with their ids in one transaction
    kind.py         the keys

What always holds: a delivery is answered with 2xx only when its record is durable; one whose id was taken is answered
with 2xx and is no second record, whatever was killed meanwhile; what is not signed as its endpoint asks is no record.
"""
