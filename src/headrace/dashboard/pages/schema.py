"""The schema of a topic: the fields of its keys and values, from the registry or inferred from the last records."""

from headrace.client.cluster import Cluster
from headrace.client.reader import read_records
from headrace.client.starts import Start, StartKind, find_stretch
from headrace.connect.avro.places import schemas_at
from headrace.dashboard.desk import Desk
from headrace.dashboard.page import Asked, Model, Page
from headrace.dashboard.pages.topic import topic_in
from headrace.dashboard.values import Shape, shape_of
from headrace.errors import HeadraceError

SAMPLE = 200  # records, over all partitions
SECONDS = 15.0


def sample(cluster: Cluster, topic: str, registry: str) -> tuple[Shape, Shape]:
    """The shapes of keys and values of the last records."""
    partitions = cluster.partitions(topic)
    stretch = find_stretch(cluster, partitions, Start(StartKind.LAST, max(SAMPLE // len(partitions), 1)))
    records = [read.record for group in read_records(cluster, stretch.starts, until=stretch.ends) for read in group]
    look_up = schemas_at(registry, lambda: cluster).look_up
    return shape_of([one.key for one in records], look_up), shape_of([one.value for one in records], look_up)


async def view(desk: Desk, asked: Asked) -> Model:
    """What the page shows now."""
    state, name = desk.state, asked.path["name"]
    assert state.snapshot is not None
    topic = topic_in(state.snapshot, name)
    keys, values, problem = Shape("nothing"), Shape("nothing"), ""
    try:
        keys, values = await desk.ask_seldom(
            ("schema", name), SECONDS, lambda cluster: sample(cluster, name, desk.settings.registry)
        )
    except HeadraceError as error:
        problem = str(error)
    return {"topic": topic, "keys": keys, "values": values, "problem": problem, "sample": SAMPLE}


PAGE = Page("/topics/{name}/schema", "Schema", "schema.html", view, parent="/topics")
