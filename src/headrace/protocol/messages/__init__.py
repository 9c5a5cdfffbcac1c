"""The messages, one file per API: request and response together, named as Kafka names them.

A file's docstring says what the API does and what its versions changed. `headrace.protocol.api` lists them all.
"""
