"""Derived systems: stores kept in step with topics: how far behind each is, and whether it was verified."""

from headrace.connect.sync.places import group_of
from headrace.dashboard.dead_letters import dead_letter_topics
from headrace.dashboard.desk import Desk
from headrace.dashboard.feeds import COPIES_TOPIC
from headrace.dashboard.page import Asked, Menu, Model, Page
from headrace.dashboard.statuses import rows
from headrace.dashboard.watch import State


def model(state: State) -> Model:
    """What the page shows."""
    letters = dead_letter_topics(state)
    found = rows(state.statuses.get(COPIES_TOPIC, {}), state.at_ms)
    for row in found:
        row["group"] = group_of(row["name"])
        row["sources"] = [topic for topic in row["source"].split(", ") if topic]
        row["letters"] = [topic for topic, known in letters.items() if row["name"] in known.syncs]
    return {"rows": found, "topic": COPIES_TOPIC}


async def view(desk: Desk, _: Asked) -> Model:
    """What the page shows now."""
    return model(desk.state)


PAGE = Page("/derived", "Derived systems", "derived.html", view, Menu("Processing", "Derived systems", "d", "derived"))
