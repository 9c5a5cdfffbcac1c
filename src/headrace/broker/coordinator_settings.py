"""The coordinators' settings, from the broker's."""

from headrace.broker.config import BrokerConfig
from headrace.coordinator.group.settings import GroupSettings
from headrace.coordinator.transaction.config import TransactionConfig


def group_settings(config: BrokerConfig) -> GroupSettings:
    """For the group coordinator."""
    return GroupSettings(
        group_min_session_timeout_ms=config.number("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.number("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms=config.number("group.initial.rebalance.delay.ms"),
        group_max_size=config.number("group.max.size"),
        group_consumer_session_timeout_ms=config.number("group.consumer.session.timeout.ms"),
        group_consumer_heartbeat_interval_ms=config.number("group.consumer.heartbeat.interval.ms"),
        offset_metadata_max_bytes=config.number("offset.metadata.max.bytes"),
        offsets_retention_minutes=config.number("offsets.retention.minutes"),
    )


def transaction_config(config: BrokerConfig, offsets_topic_partitions: int) -> TransactionConfig:
    """For the transaction coordinator, which has to find the partition that a group's offsets really are in."""
    return TransactionConfig(
        max_timeout_ms=config.number("transaction.max.timeout.ms"),
        id_expiration_ms=config.number("transactional.id.expiration.ms"),
        offsets_topic_partitions=offsets_topic_partitions,
    )
