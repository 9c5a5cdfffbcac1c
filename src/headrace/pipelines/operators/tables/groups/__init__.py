"""`group_changes` and `distinct_changes`: on keyed state, or by Spark's own aggregation where it can subtract."""
