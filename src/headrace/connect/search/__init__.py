"""Search indexes kept in step: Tantivy, embedded, and OpenSearch, over HTTP."""
