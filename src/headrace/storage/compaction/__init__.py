"""Log compaction: keeping the latest record of each key.

A pass has three parts. `cleanable.py` decides, from a log's facts alone, whether and how far to clean. `job.py` does
the work from files to files, knowing no log, so that it runs as well in a process of its own (`worker.py`), where it
takes nothing from the threads that append and read. `cleaner.py` brings the two together and swaps the result in.
"""
