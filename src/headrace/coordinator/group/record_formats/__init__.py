"""The records of `__consumer_offsets`, field by field as Kafka 4.3 writes them."""
