"""Queues over the log: what topics and groups that opt in have besides what share groups are in Kafka.

What always holds: a log stays as its clients wrote it. What becomes of a record for a group is decided when it is to be
acquired, and for topics and groups that did not opt in nothing is looked into.
"""
