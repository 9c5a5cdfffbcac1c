"""Derived systems: stores kept in step with topics: how far behind each is, and whether it was verified."""

from headrace.dashboard.desk import Desk
from headrace.dashboard.feeds import COPIES_TOPIC
from headrace.dashboard.page import Asked, Menu, Model, Page
from headrace.dashboard.statuses import rows


async def view(desk: Desk, _: Asked) -> Model:
    """What the page shows now."""
    state = desk.state
    return {"rows": rows(state.statuses.get(COPIES_TOPIC, {}), state.at_ms), "topic": COPIES_TOPIC}


PAGE = Page("/derived", "Derived systems", "derived.html", view, Menu("Processing", "Derived systems", "d", "derived"))
