"""A new target from the log, beside the old one, and then the switch.

The old target goes on being kept in step, and read, until the new one has come at least as far. Whoever keeps it in
step notices the switch at its next batch and goes on with the new one. An old target whose place is not in this topic
(it was made again, or is another one) is kept in step by nobody, and is not waited for.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from headrace.client import admin
from headrace.client.cluster import Cluster
from headrace.client.errors import Refused
from headrace.client.offsets import bounds
from headrace.connect.sync.places import checked_place
from headrace.connect.sync.runner import Runner
from headrace.connect.sync.settings import SyncSettings
from headrace.dead_letters import LetterBox, forget_letters
from headrace.status import DERIVED, StatusWriter
from headrace.stores.derived import Place, ReadableSink, RebuildableSink, Sink
from headrace.stores.errors import SinkRefused

Progress = Callable[[int, int], None]  # how many records were read, of about how many


@dataclass(frozen=True, slots=True)
class Rebuilt:
    place: Place
    records: int
    dead_letters: int  # records that the new target could not use either
    taken_back: int  # letters of the old target about records that the new one has


def rebuild(
    settings: SyncSettings,
    sink: Sink,
    connect: Callable[[], Cluster],
    *,
    incomplete: bool = False,
    progress: Progress | None = None,
) -> Rebuilt:
    """Fill a new target and switch to it. `incomplete` takes a topic that has lost its beginning."""
    if not isinstance(sink, RebuildableSink):
        raise SinkRefused(f"a {settings.sink} has no target that could be rebuilt: {settings.name!r} stays as it is")
    if not incomplete:
        _check_whole(settings, connect)
    box = LetterBox(settings.dead_letters_topic, settings.topic, settings.name)
    with connect() as cluster:
        held = bounds(cluster, cluster.partitions(settings.topic), committed=True)
        box.look(cluster)
    total, before = sum(bound.end - bound.start for bound in held.values()), box.ids
    new = sink.beside()
    runner = Runner(
        settings,
        new,
        connect,
        is_shown=False,
        progress=None if progress is None else lambda records: progress(records, total),
    )
    if progress is not None:
        progress(0, total)
    while True:
        place = runner.catch_up(threading.Event())
        old = sink.place() if isinstance(sink, ReadableSink) else None
        if old is None or _is_behind(old, place) or not _is_here(old, settings, sink, connect):
            break
    sink.switch()
    outdated = before - runner.letters
    with connect() as cluster:
        if outdated:
            forget_letters(cluster, settings.dead_letters_topic, outdated)
        with suppress(Refused):  # somebody else's cluster may not let us have a topic for it
            StatusWriter(cluster, DERIVED).write_about(settings.name, {})  # what was compared was the old target
    return Rebuilt(place, runner.applied_records, len(runner.letters), len(outdated))


def _is_here(old: Place, settings: SyncSettings, sink: Sink, connect: Callable[[], Cluster]) -> bool:
    """Whether a place can be come to in the topic as it is."""
    with connect() as cluster:
        try:
            checked_place(cluster, settings.topic, settings.name, sink, old)
        except SinkRefused:
            return False
    return True


def _is_behind(old: Place, new: Place) -> bool:
    return all(offset <= new.offsets.get(partition, 0) for partition, offset in old.offsets.items())


def _check_whole(settings: SyncSettings, connect: Callable[[], Cluster]) -> None:
    with connect() as cluster:
        held = bounds(cluster, cluster.partitions(settings.topic))
        if not any(bound.start for bound in held.values()):
            return
        configs = {config.name: config.value or "" for config in admin.describe_configs(cluster, settings.topic)}
    policy = configs.get("cleanup.policy", "delete")
    if "delete" in policy:
        raise SinkRefused(
            f"topic {settings.topic} has lost its beginning (cleanup.policy is {policy!r}), so rows would be missing: "
            "take a new snapshot into a compacted topic, or accept it with --incomplete"
        )
