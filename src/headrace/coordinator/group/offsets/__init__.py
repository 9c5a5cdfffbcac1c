"""Committed offsets, of groups of every kind: stored, read, forgotten."""
