"""The index over stored queries: candidates by their rarest facts, most pairs decided in compiled loops. Pure."""
