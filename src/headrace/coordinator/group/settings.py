"""The group coordinator's settings: Kafka's names (with `_` for `.`), and Kafka's defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

_MAX_INT32 = 2**31 - 1
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = _MAX_INT32

    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = _MAX_INT32
    group_consumer_migration_policy: str = "bidirectional"

    group_share_session_timeout_ms: int = 45_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_max_size: int = 200
    group_share_record_lock_duration_ms: int = 30_000
    group_share_delivery_count_limit: int = 5
    group_share_partition_max_record_locks: int = 2_000
    # Of single groups only, so that the broker has no names for them:
    share_auto_offset_reset: str = "latest"
    share_isolation_level: str = "read_uncommitted"
    share_renew_acknowledge_enable: bool = True
    headrace_deadletterqueue_expired_enable: bool = True
    headrace_filter: str = ""
    headrace_order: str = "none"
    headrace_retry_backoff_ms: int = 0
    headrace_retry_backoff_max_ms: int = 3_600_000
    headrace_retry_jitter: int = 0
    errors_deadletterqueue_topic_name: str = ""
    errors_deadletterqueue_copy_record_enable: bool = True

    group_streams_session_timeout_ms: int = 45_000
    group_streams_heartbeat_interval_ms: int = 5_000
    group_streams_max_size: int = _MAX_INT32
    group_streams_num_standby_replicas: int = 0
    group_streams_initial_rebalance_delay_ms: int = 3_000

    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000

    @property
    def offsets_retention_ms(self) -> int:
        """How long an offset is kept after nobody needs it."""
        return self.offsets_retention_minutes * _MINUTE_MS


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """News from the rest of the broker: these groups, and no others, have settings of their own from now on.

    A member learns of them, and its session is counted by them, when it is next heard of.
    """

    by_group: Mapping[str, GroupSettings]


class SettingsKey(NamedTuple):
    """The key of a record that is not kept: the settings of single groups."""
