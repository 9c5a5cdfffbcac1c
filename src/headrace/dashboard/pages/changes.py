"""Change capture: databases whose changes are written to topics: snapshot progress, slot lag."""

from headrace.dashboard.desk import Desk
from headrace.dashboard.feeds import CAPTURES_TOPIC
from headrace.dashboard.page import Asked, Menu, Model, Page
from headrace.dashboard.statuses import rows


async def view(desk: Desk, _: Asked) -> Model:
    """What the page shows now."""
    state = desk.state
    return {"rows": rows(state.statuses.get(CAPTURES_TOPIC, {}), state.at_ms), "topic": CAPTURES_TOPIC}


PAGE = Page("/changes", "Change capture", "changes.html", view, Menu("Processing", "Change capture", "c", "changes"))
