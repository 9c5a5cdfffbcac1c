"""Views: materialized views, how fresh they are, and where they are served."""

from collections.abc import Mapping

from headrace.dashboard.desk import Desk
from headrace.dashboard.feeds import VIEWS_TOPIC
from headrace.dashboard.page import Asked, Menu, Model, Page
from headrace.dashboard.reports import Status
from headrace.dashboard.statuses import STALE_MS, rows

_SERVED = "@serve"  # behind a view's name: what its server tells, which is not what its keeper tells


def joined(statuses: Mapping[str, Status], now_ms: int) -> dict[str, Status]:
    """What keeper and server tell of a view as one; the keeper's word counts, a living server adds the address."""
    found = {name: status for name, status in statuses.items() if not name.endswith(_SERVED)}
    for name, served in statuses.items():
        view = name.removesuffix(_SERVED)
        if name.endswith(_SERVED) and (view not in found or now_ms - served.at_ms <= STALE_MS):
            kept = found.get(view, Status(view, served.at_ms, {}))
            found[view] = Status(view, kept.at_ms, {**served.facts, **kept.facts})
    return found


async def view(desk: Desk, _: Asked) -> Model:
    """What the page shows now."""
    state = desk.state
    return {"rows": rows(joined(state.statuses.get(VIEWS_TOPIC, {}), state.at_ms), state.at_ms), "topic": VIEWS_TOPIC}


PAGE = Page("/views", "Views", "views.html", view, Menu("Processing", "Views", "v", "views"))
