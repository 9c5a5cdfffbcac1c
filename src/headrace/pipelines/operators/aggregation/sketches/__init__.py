"""Sketches: aggregates whose error is chosen and bounded, and whose size does not grow with the rows.

Each is a tally, a few numbered places with a number in each (`tally`): registers of HyperLogLog (`distinct`), buckets
of values that are nearly equal (`percentiles`), values with their counts (`frequent`). The first two depend on the rows
alone, never on their order or on how they were cut into batches, so a corrected window and one computed at once are
equal to the bit.
"""
