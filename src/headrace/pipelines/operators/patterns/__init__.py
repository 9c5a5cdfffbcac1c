"""`match_pattern`: complex event processing. The functions, the operator on keyed state, what it keeps and shows."""
