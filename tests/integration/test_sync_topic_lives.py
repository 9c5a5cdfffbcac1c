"""A derived system whose topic comes and goes: it holds what its topic stands for, or says that it cannot."""

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Broker
from headrace.client.admin import delete_topics
from headrace.client.errors import UnknownTopic
from headrace.connect.sync.rebuilding import rebuild
from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.runner import Runner, connector
from headrace.connect.sync.settings import SyncSettings
from headrace.connect.sync.status import status_of
from headrace.connect.sync.verification import verify
from headrace.stores.derived import Place
from headrace.stores.errors import SinkRefused
from tests.integration.sync_topics import connect, make_topic, upsert, write
from tests.integration.waiting import wait_until
from tests.property.storage_model import examples

_names = itertools.count()
_AGAIN = r"was deleted and made again.*headrace sync rebuild"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap_servers


class Derived:
    """A table in SQLite, the topic that it follows, and the rows that this topic stands for."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.topic = f"lives-{next(_names)}"
        self.settings = SyncSettings(
            self.topic,
            self.topic,
            "sqlite",
            {"path": str(folder / f"{self.topic}.sqlite"), "table": "orders"},
            first_pause_s=0.05,
        )
        self.connect = connector(bootstrap, self.topic)
        self.expected: dict[str, int] = {}
        self.is_there = False
        self.written = 0

    def make(self, partitions: int = 1, records: int = 0) -> None:
        if self.is_there:
            self.delete()
        make_topic(self.bootstrap, self.topic, partitions)
        self.is_there, self.expected = True, {}
        self.write(records)

    def delete(self) -> None:
        with connect(self.bootstrap) as cluster:
            delete_topics(cluster, [self.topic])
        self.is_there = False

    def write(self, records: int) -> None:
        for _ in range(records):
            self.written += 1
            self.expected[str(self.written % 7)] = self.written
            write(self.bootstrap, self.topic, [upsert(self.written % 7, {"n": self.written})])

    def sink(self) -> Any:
        return make_sink(self.settings, self.bootstrap)

    def runner(self) -> Runner:
        return Runner(self.settings, self.sink(), self.connect)

    def catch_up(self) -> Place:
        return self.runner().catch_up()

    def rebuild(self) -> None:
        """In a thread, so that a rebuild without an end is a failure and not a test without an end."""
        errors: list[BaseException] = []

        def run() -> None:
            try:
                rebuild(self.settings, self.sink(), self.connect)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), "the rebuild does not end"
        for error in errors:
            raise error

    def rows(self) -> dict[str, int]:
        return {row.key: row.values["n"] for chunk in self.sink().scan() for row in chunk}


@pytest.fixture
def derived(bootstrap: str, tmp_path: Path) -> Derived:
    made = Derived(bootstrap, tmp_path)
    made.make(records=10)
    return made


@pytest.mark.parametrize("records", [0, 4, 10, 25])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_topic_made_again_is_told_and_rebuilt_from(derived: Derived, records: int, partitions: int) -> None:
    derived.catch_up()
    before = derived.rows()
    derived.make(partitions, records)
    for _ in range(2):
        with pytest.raises(SinkRefused, match=_AGAIN):
            derived.catch_up()
    with pytest.raises(SinkRefused, match=_AGAIN):
        verify(derived.settings, derived.sink(), derived.connect)
    assert derived.rows() == before
    derived.rebuild()
    assert derived.rows() == derived.expected
    derived.write(3)
    derived.catch_up()
    assert derived.rows() == derived.expected
    assert verify(derived.settings, derived.sink(), derived.connect).is_equal


def test_made_again_while_it_is_kept_in_step(derived: Derived) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            derived.runner().run(stop)
        except SinkRefused as error:
            errors.append(error)

    stop = threading.Event()
    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: derived.rows() == derived.expected, "the rows did not come")
        before = derived.rows()
        derived.make(records=25)
        thread.join(30)
        assert [type(error) for error in errors] == [SinkRefused]
        assert "was deleted and made again" in str(errors[0])
        assert derived.rows() == before
        with connect(derived.bootstrap) as cluster:
            status = status_of(cluster, derived.settings, 0)
        assert status.state == "failed"
        assert "was deleted and made again" in status.error
    finally:
        stop.set()
        thread.join(30)


def test_a_place_from_before_there_were_ids(derived: Derived) -> None:
    """It is gone on from, and knows its topic from then on."""
    sink = derived.sink()
    sink.open()
    sink.close()
    place = derived.catch_up()
    assert place.topic_id
    assert Place.from_json(Place(place.topic, place.offsets).to_json()) == Place(place.topic, place.offsets)
    _forget_id(derived)
    derived.write(1)
    assert derived.catch_up().topic_id == place.topic_id
    assert derived.rows() == derived.expected


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_rebuild_ends_when_the_old_place_lies_beyond_the_end(derived: Derived, partitions: int) -> None:
    derived.catch_up()
    _forget_id(derived)
    derived.make(partitions, 3)
    with pytest.raises(SinkRefused, match="headrace sync rebuild"):
        derived.catch_up()
    derived.rebuild()
    assert derived.rows() == derived.expected


def _forget_id(derived: Derived) -> None:
    """As the target was before ids were kept."""
    import sqlite3

    db = sqlite3.connect(derived.settings.options["path"])
    (table,) = [
        name
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        if name != "orders"
    ]
    (text,) = db.execute(f'SELECT place FROM "{table}"').fetchone()
    place = Place.from_json(text)
    db.execute(f'UPDATE "{table}" SET place = ?', (Place(place.topic, place.offsets).to_json(),))
    db.commit()
    db.close()


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 5)),
    st.tuples(st.just("make"), st.tuples(st.integers(1, 3), st.integers(0, 12))),
    st.tuples(st.sampled_from(["delete", "catch up", "catch up", "rebuild"]), st.none()),
)


@examples(10)
@given(st.lists(STEPS, max_size=12))
def test_any_life(bootstrap: str, steps: list[tuple[str, Any]]) -> None:
    """However a topic lives: a target that was caught up holds its rows; one of an earlier topic is left as it was."""
    with TemporaryDirectory() as folder:
        derived = Derived(bootstrap, Path(folder))
        derived.make()
        life, follows = 1, 0  # the topic's life, and the one that the target was filled from
        for step, how in [*steps, ("catch up", None), ("rebuild", None)]:
            if step == "write" and derived.is_there:
                derived.write(how)
            elif step == "make":
                life += 1
                derived.make(*how)
            elif step == "delete" and derived.is_there:
                derived.delete()
            elif step in ("catch up", "rebuild"):
                run = derived.catch_up if step == "catch up" else derived.rebuild
                if not derived.is_there:
                    with pytest.raises(UnknownTopic):
                        run()
                elif step == "catch up" and follows not in (0, life):
                    before = derived.rows()
                    with pytest.raises(SinkRefused, match=_AGAIN):
                        run()
                    assert derived.rows() == before
                else:
                    run()
                    # A target that never held a place has none yet where nothing was ever written.
                    follows = life if derived.expected or follows else 0
                    assert derived.rows() == derived.expected
