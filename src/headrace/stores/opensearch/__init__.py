"""OpenSearch over HTTP; Elasticsearch's interface is the same here."""
