"""Groups: all of them, one by itself, and moving it to other offsets."""

import json
from collections.abc import Sequence
from typing import Any

from starlette.responses import RedirectResponse, Response

from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.resets import Move, plan_reset, reset
from headrace.clock import SystemClock
from headrace.connect.sync.places import check_movable, owner_of
from headrace.dashboard.alerts import Danger, danger_of, group_link, worst
from headrace.dashboard.charts import chart, sparkline
from headrace.dashboard.errors import BadForm
from headrace.dashboard.history import History, smooth
from headrace.dashboard.page import Action, Asked, Desk, Menu, Model, Page, Params, Show, find_in
from headrace.dashboard.reports import Statuses
from headrace.dashboard.snapshot import GroupSample
from headrace.dashboard.statuses import row as status_row
from headrace.model import TopicPartition
from headrace.status import DERIVED

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
    said = statuses.get(DERIVED, {}).get(name or "")
    return None if said is None else {"name": said.name, "state": status_row(said, now_ms)["state"]}


async def view_groups(desk: Desk, asked: Asked) -> Model:
    """All groups, how far behind they are, and which are in danger."""
    snapshot, history, query = desk.snapshot, desk.state.history, asked.query
    wanted = query.get("q", "").strip().lower()
    found = [group for group in snapshot.groups.values() if wanted in group.name.lower()]
    rows = [
        {
            "name": group.name,
            "state": group.state,
            "owner": owner(group, desk.state.statuses, snapshot.at_ms),
            "kind": group.kind,
            "members": len(group.members),
            "topics": group.topics,
            "lag": group.lag_records,
            "lag_ms": group.lag_ms,
            "read": smooth(history.group_reads.get(group.name, ())),
            "spark": sparkline(history.group_lags.get(group.name, ())),
            "outlook": outlook(dangers_of(group, history, snapshot.at_ms)),
            "removed": sum(lag.removed for lag in group.partitions),
            "problem": group.problem,
        }
        for group in found[:MOST]
    ]
    return {"rows": rows, "found": len(found), "q": query.get("q", ""), "is_filtered": bool(wanted)}


async def view_group(desk: Desk, asked: Asked) -> Model:
    """One group: its members, its offset in each partition, and what it stands to lose."""
    snapshot, history, name = desk.snapshot, desk.state.history, asked.path["name"]
    group = find_in(snapshot.groups, "group", name)
    places = history.places.get(name, {})
    rows = []
    for lag in group.partitions:
        danger = danger_of(lag, places.get(lag.partition, ()), snapshot.at_ms)
        rows.append(
            {
                "topic": lag.partition.topic,
                "partition": lag.partition.partition,
                "committed": lag.committed,
                "start": lag.start,
                "end": lag.end,
                "lag": lag.records,
                "lag_ms": lag.age_ms(snapshot.at_ms),
                "removed": lag.removed,
                "beyond": lag.beyond,
                "pace": danger.pace if danger else None,
                "outlook": outlook([danger] if danger else []),
                "reader": ", ".join(map(str, group.readers_of(lag.partition))),
            }
        )
    return {
        "group": group,
        "owner": owner(group, desk.state.statuses, snapshot.at_ms),
        "rows": rows,
        "outlook": outlook(dangers_of(group, history, snapshot.at_ms)),
        "read": smooth(history.group_reads.get(name, ())),
        "lags": chart("Lag", "records", [(name, history.group_lags.get(name, ()))]),
        "reads": chart("Read", "records/s", [(name, history.group_reads.get(name, ()))]),
        "was_reset": asked.query.get("reset") == "1",
        "gone": [str(where) for where in group.gone],
    }


# --- moving it


async def plan(desk: Desk, path: Params, form: Params, show: Show) -> Response:
    """Show what a reset would do; nothing is changed yet."""
    name, place, topic = path["name"], form.get("to", "").strip(), form.get("topic", "").strip()
    check_movable(name)
    if not place:
        raise BadForm("say where to start: earliest, latest, an offset, a time, or how long ago")
    target = desk.settings.language.target(place, SystemClock().now_ms())
    chosen = {topic: ()} if topic else None
    moves = await desk.ask(lambda cluster: plan_reset(Coordinators(cluster), name, chosen, target))
    model = {"name": name, "moves": moves, "to": place, "packed": pack(moves), "title": f"Reset {name}"}
    return show.whole("reset.html", model)


async def move(desk: Desk, path: Params, form: Params, show: Show) -> Response:  # noqa: ARG001 - of all actions
    name, moves = path["name"], unpack(form.get("moves", ""))
    check_movable(name)

    def run(cluster: Cluster) -> None:
        reset(Coordinators(cluster), name, moves)

    await desk.ask(run)
    return RedirectResponse(f"{group_link(name)}?reset=1", 303)


def pack(moves: list[Move]) -> str:
    """A plan as the confirming form carries it: what is done is what was shown, even if a minute has passed."""
    return json.dumps([[move.partition.topic, move.partition.partition, move.new] for move in moves])


def unpack(text: str) -> list[Move]:
    try:
        return [Move(TopicPartition(str(topic), int(index)), None, int(new)) for topic, index, new in json.loads(text)]
    except (TypeError, ValueError):
        raise BadForm("the plan in this form cannot be read: preview the reset again") from None


GROUPS = Page("/groups", "Groups", "groups.html", view_groups, Menu("Log", "Groups", "g", "groups"))
GROUP = Page(
    "/groups/{name:path}",
    "Group",
    "group.html",
    view_group,
    parent="/groups",
    actions=(Action("/groups/{name:path}/plan", plan), Action("/groups/{name:path}/move", move)),
)
