"""Tantivy, a search index inside the process."""
