"""Log compaction: keeping the latest record of each key.

`cleaner.py` decides, from a log's facts alone, whether and how far to clean, and swaps the result in. `job.py` does the
work from files to files, knowing no log, so that it runs as well in a process of its own, where it takes nothing from
the threads that append and read. `retained.py` says what remains of a batch; `columnar.py` says it quicker, compiled.
"""
