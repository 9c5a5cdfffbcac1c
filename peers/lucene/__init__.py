"""Lucene Monitor, as the measure of stored queries."""
