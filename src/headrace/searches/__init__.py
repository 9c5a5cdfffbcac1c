"""Stored queries at work: documents of a topic are held against them as they come, and each hit is written once.

    hits.py                 a hit as a record
    settings.py             `[search.NAME]` of headrace.toml, checked
    places.py               how far a search has come, as it is committed with its hits (pure)
    runner.py               the loop: queries and documents in, hits and places out in one transaction
    standing.py  http.py    documents in hand, and queries changed, over HTTP
    live_hits.py            hits as they come, for browsers
    digests.py  letter.py   when an owner gets a mail, and what it says (pure)
    mail_settings.py        `[mail.NAME]` of headrace.toml, checked
    mail.py  postman.py     hits gathered into digests, and sent through the outbox

What always holds: a hit and the place behind its document are committed together; a document is held against the
queries that stand when it is read, and every hit names the offset up to which queries were read; what was matched
before a crash and not committed was never seen by anybody.
"""
