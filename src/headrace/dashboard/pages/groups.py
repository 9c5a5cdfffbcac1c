"""Groups: all of them, how far behind they are, and who is in danger."""

from collections.abc import Sequence
from typing import Any

from headrace.connect.sync.places import owner_of
from headrace.dashboard.charts import sparkline
from headrace.dashboard.danger import Danger, danger_of, worst
from headrace.dashboard.desk import Desk
from headrace.dashboard.feeds import COPIES_TOPIC, Statuses
from headrace.dashboard.history import History, smoothed
from headrace.dashboard.page import Asked, Menu, Model, Page, Params
from headrace.dashboard.snapshot import GroupSample, Snapshot
from headrace.dashboard.statuses import row as status_row

MOST = 500


def dangers_of(group: GroupSample, history: History, now_ms: int) -> list[Danger]:
    """What a group stands to lose, in each partition where it does."""
    places = history.places.get(group.name, {})
    found = [danger_of(lag, places.get(lag.partition, ()), now_ms) for lag in group.partitions]
    return [danger for danger in found if danger]


def outlook(dangers: Sequence[Danger]) -> dict[str, Any]:
    """Time until data loss, in words that do not need to be explained."""
    first = worst(list(dangers))
    if first is None:
        return {"kind": "none", "left_ms": None, "setting": ""}
    if first.left_ms is None:
        return {"kind": "catching-up" if first.is_catching_up else "unknown", "left_ms": None, "setting": first.setting}
    return {"kind": "near" if first.is_near else "far", "left_ms": first.left_ms, "setting": first.setting}


def owner(group: GroupSample, statuses: Statuses, now_ms: int) -> dict[str, Any] | None:
    """The part that reads for a group without being its member; None where members do, or nobody does."""
    name = owner_of(group.name)
    said = statuses.get(COPIES_TOPIC, {}).get(name or "")
    return None if said is None else {"name": said.name, "state": status_row(said, now_ms)["state"]}


def model(snapshot: Snapshot, history: History, statuses: Statuses, query: Params) -> Model:
    """What the page shows."""
    wanted = query.get("q", "").strip().lower()
    found = [group for group in snapshot.groups.values() if wanted in group.name.lower()]
    rows = [
        {
            "name": group.name,
            "state": group.state,
            "owner": owner(group, statuses, snapshot.at_ms),
            "kind": group.kind,
            "members": len(group.members),
            "topics": group.topics,
            "lag": group.lag_records,
            "lag_ms": group.lag_ms,
            "read": smoothed(history.group_reads.get(group.name, ())),
            "spark": sparkline(history.group_lags.get(group.name, ())),
            "outlook": outlook(dangers_of(group, history, snapshot.at_ms)),
            "removed": sum(lag.removed for lag in group.partitions),
            "problem": group.problem,
        }
        for group in found[:MOST]
    ]
    return {"rows": rows, "found": len(found), "q": query.get("q", ""), "is_filtered": bool(wanted)}


async def view(desk: Desk, asked: Asked) -> Model:
    """What the page shows now."""
    assert desk.state.snapshot is not None
    return model(desk.state.snapshot, desk.state.history, desk.state.statuses, asked.query)


PAGE = Page("/groups", "Groups", "groups.html", view, Menu("Log", "Groups", "g", "groups"))
