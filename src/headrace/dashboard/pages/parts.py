"""Change capture, derived systems and views: what each part reports of itself, a row each."""

from headrace import status
from headrace.connect.sync.places import group_of
from headrace.dashboard.page import Asked, Desk, Menu, Model, Page
from headrace.dashboard.statuses import dead_letter_topics, join_served, rows


async def view_captures(desk: Desk, _: Asked) -> Model:
    """Databases whose changes are written to topics: snapshot progress, slot lag."""
    state = desk.state
    return {"rows": rows(state.statuses.get(status.CAPTURES, {}), state.at_ms), "topic": status.CAPTURES}


async def view_derived(desk: Desk, _: Asked) -> Model:
    """Stores kept in step with topics: how far behind each is, and whether it was verified."""
    state = desk.state
    letters = dead_letter_topics(state)
    found = rows(state.statuses.get(status.DERIVED, {}), state.at_ms)
    for row in found:
        row["group"] = group_of(row["name"])
        row["sources"] = [topic for topic in row["source"].split(", ") if topic]
        row["letters"] = [topic for topic, known in letters.items() if row["name"] in known.syncs]
    return {"rows": found, "topic": status.DERIVED}


async def view_views(desk: Desk, _: Asked) -> Model:
    """Materialized views, how fresh they are, and where they are served."""
    state = desk.state
    return {
        "rows": rows(join_served(state.statuses.get(status.VIEWS, {}), state.at_ms), state.at_ms),
        "topic": status.VIEWS,
    }


CAPTURES = Page(
    "/changes", "Change capture", "changes.html", view_captures, Menu("Processing", "Change capture", "c", "changes")
)
DERIVED = Page(
    "/derived", "Derived systems", "derived.html", view_derived, Menu("Processing", "Derived systems", "d", "derived")
)
VIEWS = Page("/views", "Views", "views.html", view_views, Menu("Processing", "Views", "v", "views"))
