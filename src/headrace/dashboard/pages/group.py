"""One group: its members, its place in each partition, what it stands to lose, and moving it to another place."""

import json

from starlette.responses import RedirectResponse, Response

from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.resets import Move, plan_reset, reset
from headrace.clock import SystemClock
from headrace.connect.sync.owners import check_movable
from headrace.dashboard.alerts import group_link
from headrace.dashboard.charts import chart
from headrace.dashboard.danger import danger_of
from headrace.dashboard.desk import Desk
from headrace.dashboard.errors import BadForm, NotThere
from headrace.dashboard.feeds import Statuses
from headrace.dashboard.history import History, smoothed
from headrace.dashboard.page import Action, Asked, Model, Page, Params, Show
from headrace.dashboard.pages.groups import dangers_of, outlook, owner
from headrace.dashboard.snapshot import GroupSample, Snapshot
from headrace.model import TopicPartition


def group_in(snapshot: Snapshot, name: str) -> GroupSample:
    """The group of this name."""
    group = snapshot.groups.get(name)
    if group is None:
        raise NotThere(f"There is no group {name!r}: it was deleted, or the name is misspelt.")
    return group


def model(snapshot: Snapshot, history: History, statuses: Statuses, name: str) -> Model:
    """What the page shows."""
    group = group_in(snapshot, name)
    places = history.places.get(name, {})
    rows = []
    for lag in group.partitions:
        danger = danger_of(lag, places.get(lag.partition, ()), snapshot.at_ms)
        reader = group.reader_of(lag.partition)
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
                "reader": str(reader) if reader else "",
            }
        )
    return {
        "group": group,
        "owner": owner(group, statuses, snapshot.at_ms),
        "rows": rows,
        "outlook": outlook(dangers_of(group, history, snapshot.at_ms)),
        "read": smoothed(history.group_reads.get(name, ())),
        "lags": chart("Lag", "records", [(name, history.group_lags.get(name, ()))]),
        "reads": chart("Read", "records/s", [(name, history.group_reads.get(name, ()))]),
        "gone": [str(where) for where in group.gone],
    }


async def view(desk: Desk, asked: Asked) -> Model:
    """What the page shows now."""
    assert desk.state.snapshot is not None
    found = model(desk.state.snapshot, desk.state.history, desk.state.statuses, asked.path["name"])
    return {**found, "was_reset": asked.query.get("reset") == "1"}


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
    """Do what was shown."""
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
    """The plan of a form."""
    try:
        return [Move(TopicPartition(str(topic), int(index)), None, int(new)) for topic, index, new in json.loads(text)]
    except (TypeError, ValueError):
        raise BadForm("the plan in this form cannot be read: preview the reset again") from None


PAGE = Page(
    "/groups/{name:path}",
    "Group",
    "group.html",
    view,
    parent="/groups",
    actions=(Action("/groups/{name:path}/plan", plan), Action("/groups/{name:path}/move", move)),
)
