"""OpenSearch, started as one node: what the search sink is measured against."""
