"""Whether a batch is written, skipped or refused."""

import pytest

from headrace.stores.batch import OnNewQuery, Recorded, Step, decide_step
from headrace.stores.errors import ForeignQuery

MINE = Recorded("me", 4)


@pytest.mark.parametrize(
    ("recorded", "batch_id", "policy", "step"),
    [
        ([], 0, "refuse", Step.WRITE),
        ([], 17, "refuse", Step.WRITE),  # a sink that is added to a query on its way
        ([MINE], 5, "refuse", Step.WRITE),
        ([MINE], 9, "refuse", Step.WRITE),  # the user's own function may leave out batches
        ([MINE], 4, "refuse", Step.SKIP),
        ([MINE], 4, "replace", Step.SKIP),
        ([Recorded("other", 4)], 0, "continue", Step.TAKE_OVER),
        ([Recorded("other", -1)], 0, "refuse", Step.WRITE),  # it wrote nothing
        ([Recorded("other", 4)], 5, "replace", Step.START_OVER),
        ([Recorded("other", 4, superseded=True), MINE], 5, "continue", Step.WRITE),
    ],
)
def test_steps(recorded: list[Recorded], batch_id: int, policy: OnNewQuery, step: Step) -> None:
    assert decide_step("s", recorded, "me", batch_id, policy) is step


@pytest.mark.parametrize("policy", ["refuse", "continue", "replace"])
@pytest.mark.parametrize(
    ("recorded", "text"),
    [
        ([MINE], "checkpoint is older than the target"),
        ([Recorded("me", 1, superseded=True), Recorded("other", 0)], "superseded by query other"),
    ],
)
def test_what_is_always_refused(recorded: list[Recorded], text: str, policy: OnNewQuery) -> None:
    with pytest.raises(ForeignQuery, match=text):
        decide_step("s", recorded, "me", 3, policy)


def test_another_query_is_refused_even_when_its_number_would_follow() -> None:
    with pytest.raises(ForeignQuery, match="written by query other up to batch 4") as error:
        decide_step("s", [Recorded("other", 4)], "me", 5, "refuse")
    assert (error.value.sink, error.value.query_id, error.value.batch_id) == ("s", "me", 5)
    assert "say on_new_query='replace' to begin again with an empty target, 'continue' to add" in str(error.value)


def test_a_store_that_cannot_begin_again_is_not_told_to() -> None:
    for recorded, batch in ([Recorded("other", 4)], 5), ([Recorded("me", 4)], 3):
        with pytest.raises(ForeignQuery, match="on_new_query='continue'") as error:
            decide_step("s", recorded, "me", batch, "refuse", can_replace=False)
        assert "replace" not in str(error.value)
