"""The slot looked after: how much of its log the server keeps for it, and what is too much."""

from collections.abc import Callable
from typing import Any

import psycopg

from headrace.connect.postgres.facts import SourceFacts
from headrace.connect.postgres.settings import PostgresSettings
from headrace.connect.postgres.slot import drop_slot, slot_lost, slot_over_cap, slot_state, when_free
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)


def look_after_slot(
    connection: psycopg.Connection[tuple[Any, ...]],
    settings: PostgresSettings,
    facts: SourceFacts,
    let_go: Callable[[], None],
) -> None:
    """Note what the server keeps, and tell if it is much; a slot that is lost or beyond the cap is the end.

    `let_go` ends the connection that reads the slot: it is not dropped before.
    """
    slot = settings.slot
    state = slot_state(connection, slot)
    if state is None:
        return
    facts.lag_bytes = state.lag_bytes
    if state.is_lost:
        raise slot_lost(slot)
    if settings.lag_cap_bytes is not None and state.lag_bytes > settings.lag_cap_bytes:
        let_go()
        when_free(lambda: drop_slot(connection, slot))
        raise slot_over_cap(slot, state.lag_bytes, settings.lag_cap_bytes)
    if state.lag_bytes > settings.lag_alarm_bytes:
        log.warning("slot lags", slot=slot, lag_bytes=state.lag_bytes, alarm_bytes=settings.lag_alarm_bytes)
