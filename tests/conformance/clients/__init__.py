"""Real Kafka clients behind one face, so that one scenario runs with all of them.

Each module wraps one client: `confluent` (librdkafka), `aio` (aiokafka), `python` (kafka-python), `java` (Kafka's own
command-line tools), and `wire` (requests built with `headrace.protocol`, for what no client lets one say). All take
`bootstrap.servers`, are context managers, and tell errors by Kafka's names (`TOPIC_ALREADY_EXISTS`). `members` has what
the first three do in a group (`member_process`: in a process of its own), and `transactions` what they do in one.
"""
