"""`join_tables`: the operator on keyed state, the logs that it keeps of both sides, and what a log adds up to."""
