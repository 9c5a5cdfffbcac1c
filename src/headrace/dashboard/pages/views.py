"""Views: materialized views, and how fresh they are."""

from headrace.dashboard.desk import Desk
from headrace.dashboard.feeds import VIEWS_TOPIC
from headrace.dashboard.page import Asked, Menu, Model, Page
from headrace.dashboard.statuses import rows


async def view(desk: Desk, _: Asked) -> Model:
    """What the page shows now."""
    state = desk.state
    return {"rows": rows(state.statuses.get(VIEWS_TOPIC, {}), state.at_ms), "topic": VIEWS_TOPIC}


PAGE = Page("/views", "Views", "views.html", view, Menu("Processing", "Views", "v", "views"))
