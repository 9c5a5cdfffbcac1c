"""A subject forgotten in a whole stack, and a stack searched for what should be forgotten.

The order is what makes it safe to be killed at any point and run again: the keys first, for that alone closes every
sealed value in every copy; then the ledger, so that nobody brings them back; then what each place has besides.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from headrace.client.cluster import Cluster
from headrace.connect.sync.settings import SECTION as SYNC
from headrace.errors import HeadraceError
from headrace.eventsourcing.flow import SECTION as EVENTS
from headrace.forgetting.keyring import Keyring
from headrace.forgetting.ledger import Ledger, reconcile
from headrace.forgetting.report import Finding, Hit, Outcome, Report
from headrace.forgetting.search import Needles
from headrace.stack.forgetting.derived import DerivedPlace
from headrace.stack.forgetting.event_stores import EventStorePlace
from headrace.stack.forgetting.files import CheckpointPlace
from headrace.stack.forgetting.place import Place, Subject
from headrace.stack.forgetting.topics import TopicPlace, topics_of
from headrace.stack.forgetting.views import views_of
from headrace.stack.kind import Stack
from headrace.stack.kinds.forgetting import NAME
from headrace.stack.kinds.pipelines import NAME as PIPELINES
from headrace.stack.kinds.pipelines import spark_of
from headrace.stack.kinds.views import NAME as VIEWS

KEYS: Final = "key store"
Watch = Callable[[str], None]


def places_of(stack: Stack, cluster: Cluster | None, ledger: Ledger | None, patience_s: float) -> Iterator[Place]:
    """Everywhere that a stack may keep something about somebody."""
    settings: Mapping[str, Any] = stack.one(NAME) or {}
    for name, values in stack.several(EVENTS).items():
        yield EventStorePlace(name, values["url"], stack.folder)
    if cluster is not None:
        for topic, field in topics_of(cluster, settings.get("topics", {})):
            yield TopicPlace(cluster, topic, field, ledger, patience_s=patience_s)
        for name, values in stack.several(SYNC).items():
            known = ledger or Ledger(cluster)
            yield DerivedPlace(name, values, cluster, str(cluster), known, patience_s)
    state = stack.folder / spark_of(stack)["state_dir"]
    coded = {f"{PIPELINES}.{name}": values for name, values in stack.several(PIPELINES).items()}
    if (views := stack.one(VIEWS)) is not None:
        coded[VIEWS] = views
    for part, values in coded.items():
        yield CheckpointPlace(part, stack.folder / values["file"], state)
        yield from views_of(part, stack.folder / values["file"], str(cluster or ""))


def forget(
    stack: Stack,
    keys: Keyring,
    subject: str,
    connect: Callable[[], Cluster],
    *,
    dry: bool = False,
    patience_s: float = 60.0,
    watch: Watch = lambda _: None,
) -> Report:
    """Forget a subject everywhere; the report says what became of each place."""
    report = Report(is_dry=dry)
    digest = keys.digest(subject)  # refuses what is no subject before anything is done
    watch("the key store")
    report.add(_forget_keys(keys, subject, digest, dry=dry))
    who = Subject(subject, keys, frozenset(keys.key_ids(subject)))
    with _reached(connect, report) as cluster:
        ledger = None
        if cluster is not None:
            watch("the ledger")
            ledger = Ledger(cluster)
            report.add(_write_ledger(keys, ledger, who, dry=dry))
        for place in places_of(stack, cluster, ledger, patience_s):
            watch(place.name)
            try:
                report.add(place.forget(who, dry=dry))
            except HeadraceError as error:  # one place that is away is no reason to leave the others as they are
                report.add([Finding(place.name, "anything", Outcome.FAILED, 0, str(error))])
    return report


def _forget_keys(keys: Keyring, subject: str, digest: str, *, dry: bool) -> Iterator[Finding]:
    place = f"{KEYS} in {keys.store}"
    live = [key for key in keys.store.find(digest) if key.wrapped is not None]
    if dry:
        yield Finding(place, "keys", Outcome.ERASED if live else Outcome.NOTHING, len(live))
        return
    done = keys.forget(subject)
    if not live and not done.is_repeat:
        why = "there never was a key of this subject, and there will be none: check how it is written"
        yield Finding(place, "keys", Outcome.NOTHING, 0, "; ".join([why, *done.remains]))
        return
    yield Finding(place, "keys", Outcome.ERASED, len(done.forgotten.key_ids), "; ".join(done.remains))


def _write_ledger(keys: Keyring, ledger: Ledger, who: Subject, *, dry: bool) -> Iterator[Finding]:
    back = reconcile(keys, ledger, dry=dry)
    others = [key_id for key_id in back if key_id not in who.key_ids]
    if others:
        outcome = Outcome.FOLLOWS if dry else Outcome.ERASED
        why = "they had been destroyed before, and were there again: the key store was restored from a backup"
        yield Finding(KEYS, "keys of others", outcome, len(others), why)


@contextmanager
def _reached(connect: Callable[[], Cluster], report: Report) -> Iterator[Cluster | None]:
    """The cluster while the block runs; None, and a finding, if it is away."""
    with connect() as cluster:
        try:
            cluster.topics()
        except HeadraceError as error:
            report.add([Finding("topics", "anything", Outcome.FAILED, 0, str(error))])
            yield None
        else:
            yield cluster


def verify(
    stack: Stack,
    keys: Keyring,
    subject: str,
    needles: Needles,
    connect: Callable[[], Cluster],
    *,
    watch: Watch = lambda _: None,
) -> tuple[Report, list[Hit]]:
    """Look for values in every place, and for keys that should be gone; what could not be looked into is reported."""
    report, hits = Report(is_dry=True), list[Hit]()
    live = [key for key in keys.store.find(keys.digest(subject)) if key.wrapped is not None]
    if live:
        why = "the subject is not forgotten: run headrace forget"
        report.add([Finding(f"{KEYS} in {keys.store}", "keys", Outcome.FAILED, len(live), why)])
    with _reached(connect, report) as cluster:
        if cluster is not None and (back := reconcile(keys, Ledger(cluster), dry=True)):
            why = "destroyed keys are there again: the key store was restored from a backup; run headrace forget"
            report.add([Finding(KEYS, "keys", Outcome.FAILED, len(back), why)])
        for place in places_of(stack, cluster, None, 0):
            watch(place.name)
            try:
                found = list(place.search(needles))
            except HeadraceError as error:
                report.add([Finding(place.name, "anything", Outcome.FAILED, 0, f"not looked into: {error}")])
                continue
            hits += found
            report.add([Finding(place.name, "values", Outcome.FAILED if found else Outcome.NOTHING, len(found))])
    return report, hits
