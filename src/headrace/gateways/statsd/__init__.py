"""What programs send as StatsD or DogStatsD, aggregated by interval into topics.

Pure are `parse.py` (lines, read exactly), `timing.py` (what is said of a timer), `plain.py` and `columnar.py` with
`walk.py` (adding up, twice: line by line, and compiled; a test holds them against each other), `records.py` and
`prometheus.py` (what comes out). `packets.py`, `receiving.py`, `streams.py` and `exposition.py` speak to sockets, and
`server.py` is the gateway.
"""
