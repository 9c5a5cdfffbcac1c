"""Gateways: what comes in from programs that speak no Kafka, what goes out to them, and what was lost on the way."""

from typing import Any, Final

from headrace.dashboard.page import Asked, Desk, Menu, Model, Page
from headrace.dashboard.statuses import row
from headrace.status import GATEWAYS, Status

_NUMBERS: Final = ("records", "per_s", "received", "dropped", "refused", "connections", "lag_records", "lag_bytes")
# What stands in a column of its own, or says nothing to people.
_HIDDEN: Final = {*_NUMBERS, "bytes"}


async def view_gateways(desk: Desk, _: Asked) -> Model:
    """What every gateway last reported of itself, and the topics that there are to link to."""
    state = desk.state
    topics = state.snapshot.topics if state.snapshot else {}
    found = sorted(state.statuses.get(GATEWAYS, {}).items())
    return {"rows": [_gateway(status, state.at_ms, topics) for _, status in found], "topic": GATEWAYS}


def _gateway(status: Status, now_ms: int, topics: Any) -> dict[str, Any]:
    made = row(status, now_ms)
    ends = {end: {"text": made[end], "is_topic": made[end] in topics} for end in ("source", "target")}
    others = {fact.replace("_", " "): said for fact, said in made["others"].items() if fact not in _HIDDEN}
    return {**made, **{name: status.number(name) for name in _NUMBERS}, **ends, "others": others}


GATEWAYS_PAGE = Page(
    "/gateways", "Gateways", "gateways.html", view_gateways, Menu("Processing", "Gateways", "w", "gateways")
)
