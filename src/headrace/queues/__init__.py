"""Queues: what people do with share groups, from Python, on our broker and on any Kafka that has them."""
