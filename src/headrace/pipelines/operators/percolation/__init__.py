"""`percolate`: stored queries, and rows as the documents that flow past. The function, the operator, what it emits."""
