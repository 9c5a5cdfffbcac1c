"""The partitioned log on disk, in Kafka's own file formats.

One noun a file. `directory.py` is the way in: a data directory full of logs, opened, recovered and looked after.
`log.py` is one partition; `segment.py` one stretch of it; everything below is what Kafka keeps beside a segment.
"""
