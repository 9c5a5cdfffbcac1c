"""Records as Avro, in Confluent's framing: a zero, four bytes of the schema's id, the value.

Schemas are what Confluent's converter makes of Debezium's: `types` turns one into the other and writes nested values,
`rows` makes straight-line code for a table, `avro_form` puts records together. Where schemas are kept is told by a URL
(`registry`), or they are in a topic of ours (`topic_schemas`), from which `serving` answers as a registry does.
`reading` is the way back, for derived systems.
"""
