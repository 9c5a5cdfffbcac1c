"""Warehouses kept in step: DuckDB as a database, Delta and Parquet as folders.

`duckdb.py` is a database for the SQL sink. `delta.py` merges by delta-rs, and the place in the log stands in the same
commit. `parquet.py` keeps rows in buckets of files that a manifest names, with the place in the same manifest.
"""
