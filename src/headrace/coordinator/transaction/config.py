"""The settings of a transaction coordinator, under Kafka's names, with Kafka's defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """How long transactions and transactional ids may last, and how often that is looked at."""

    max_timeout_ms: int = 15 * 60 * 1000  # transaction.max.timeout.ms
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000  # transactional.id.expiration.ms
    # transaction.abort.timed.out.transaction.cleanup.interval.ms
    abort_timed_out_interval_ms: int = 10 * 1000
    # transaction.remove.expired.transaction.cleanup.interval.ms
    remove_expired_interval_ms: int = 60 * 60 * 1000
    offsets_topic_partitions: int = 50  # offsets.topic.num.partitions
