"""Every operator behind every other, in one query: the answer of a database, or a sentence before anything runs."""

import threading
from itertools import count
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.pipelines.errors import PipelineError
from tests.integration.composing import BY_NAME, STEPS, Step, Streams, found, result

pytestmark = pytest.mark.java
_names = (f"composed_{number}" for number in count())
SOME = [
    ("tumbling", "tumbling"),
    ("hopping", "sessions"),
    ("sessions", "sliding"),
    ("join_streams", "hopping"),
    ("tumbling", "join_streams of windows"),
    ("enrich, as_of", "tumbling"),
    ("hopping", "enrich, as_of"),
    ("sliding", "group_changes"),
]


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Streams:
    return Streams(spark, tmp_path_factory.mktemp("composing"))


class Running:
    """A query with the rows that it has given."""

    def __init__(self, streams: Streams, *steps: Step) -> None:
        frame = result(streams.chained(*steps))
        self.name = next(_names)
        writer = frame.writeStream.format("memory").queryName(self.name).trigger(availableNow=True)
        self.query, self.spark = writer.start(), streams.spark

    def rows(self) -> list[Any]:
        self.query.awaitTermination()
        return [tuple(row) for row in self.spark.table(self.name).collect()]

    def late(self) -> int:
        """Rows that any operator counted as late."""
        progress = self.query.recentProgress
        counted = [row.asDict() for each in progress for row in each.observedMetrics.values()]
        dropped = [step.numRowsDroppedByWatermark for each in progress for step in each.stateOperators]
        return sum(row.get("late") or 0 for row in counted) + sum(dropped)


def run(streams: Streams, chains: list[tuple[Step, ...]], at_once: int = 4) -> dict[str, str]:
    """Chains, some at once; what is wrong with each."""
    wrong: dict[str, str] = {}
    turns = threading.Semaphore(at_once)

    def answer(chain: tuple[Step, ...]) -> None:
        name = " -> ".join(step.name for step in chain)
        with turns:
            try:
                running = Running(streams, *chain)
                rows, expected = found(running.rows()), expectations[name]
                if rows != expected:
                    wrong[name] = (
                        f"missing {sorted((expected - rows).items(), key=str)[:3]}, too many {sorted((rows - expected).items(), key=str)[:3]} of {expected.total()}"  # noqa: E501
                    )
                elif not expected:
                    wrong[name] = "nothing to compare"
                elif running.late():
                    wrong[name] = f"{running.late()} rows late"
            except Exception as error:
                wrong[name] = f"{type(error).__name__}: {str(error)[:300]}"

    expectations = {" -> ".join(step.name for step in chain): streams.answer(*chain) for chain in chains}
    threads = [threading.Thread(target=answer, args=(chain,)) for chain in chains]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def refusal(streams: Streams, *steps: Step) -> str | None:
    """The sentence by which a chain is refused; None if it may run."""
    try:
        streams.chained(*steps)
    except PipelineError as error:
        return str(error)
    return None


def test_operators_behind_operators_give_a_databases_answer(streams: Streams) -> None:
    assert run(streams, [(BY_NAME[one], BY_NAME[other]) for one, other in SOME]) == {}


@pytest.mark.long
@pytest.mark.parametrize("first", STEPS, ids=lambda step: step.name)
def test_every_operator_behind_every_other(streams: Streams, first: Step) -> None:
    assert run(streams, [(first, other) for other in STEPS if refusal(streams, first, other) is None]) == {}
