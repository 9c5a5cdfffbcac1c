"""The index over stored queries: candidates by their rarest facts, most pairs decided in compiled loops. Pure."""

from headrace.percolation.index.batch import Percolated, percolate_batch, settle
from headrace.percolation.index.query_index import IndexStatistics, Matches, QueryIndex

__all__ = ["IndexStatistics", "Matches", "Percolated", "QueryIndex", "percolate_batch", "settle"]
