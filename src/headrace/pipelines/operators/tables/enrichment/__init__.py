"""`enrich`: events with a table's row. The function, its two operators on keyed state, and the versions of rows."""
