"""Derived systems kept in step: one ordered log, read by each sink at its own pace.

A record's way: `feed.py` fetches, in batches as large as the lag makes them and no larger than the settings allow ·
`alignment.py` holds partitions at a truncate until all of them are there · `reduction.py` keeps the last change of each
key · `decoding.py` reads what is left · the sink applies it with the place it reaches up to. `runner.py` is the loop
around it: it waits with growing pauses while a target is down, and writes records that cannot be used to the
dead-letter topic. `places.py` tells the world how far a sink is and what it is doing; `status.py` reads it.
`verification.py` compares a target with the log, `rebuilding.py` fills a new one and switches.

What always holds: what a sink has is what the log says up to its place, whatever was killed meanwhile; one sink that is
down holds up no other; and memory does not grow with the lag.
"""
