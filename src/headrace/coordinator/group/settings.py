"""The group coordinator's settings: Kafka's names (with `_` for `.`), and Kafka's defaults."""

from dataclasses import dataclass

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

    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000

    @property
    def offsets_retention_ms(self) -> int:
        """How long an offset is kept after nobody needs it."""
        return self.offsets_retention_minutes * _MINUTE_MS
