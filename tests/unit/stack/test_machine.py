"""What a supervisor decides: order, restarts, giving up, draining; and what holds whatever happens."""

import random

from hypothesis import given
from hypothesis import strategies as st

from headrace.stack.machine import ALIVE, FINE, Drain, End, Fleet, Kill, Phase, Post, Rules, Start, Terminate
from tests.property.storage_model import examples

BROKER = Post("broker", 0, is_vital=True)
TOPICS = Post("topics", 1, ("broker",), is_task=True, is_vital=True)
CAPTURE = Post("cdc.shop", 2, ("topics",), may_end=True)
PIPELINE = Post("pipelines.sums", 3, ("topics",), may_end=True)
DASHBOARD = Post("dashboard", 4, ("broker",))
ALL = (BROKER, TOPICS, CAPTURE, PIPELINE, DASHBOARD)


def running(*posts: Post, rules: Rules | None = None) -> Fleet:
    fleet = Fleet(posts, rules or Rules())
    for post in posts:
        fleet = fleet.started(post.name, 0)
        fleet = fleet.ended(post.name, 0, 0) if post.is_task else fleet.ready(post.name, 0)
    return fleet


def test_each_starts_when_what_it_needs_is_ready() -> None:
    fleet = Fleet(ALL)
    assert fleet.decide(0) == [Start("broker")]
    fleet = fleet.started("broker", 0)
    assert fleet.decide(1) == []
    fleet = fleet.ready("broker", 1)
    assert fleet.decide(1) == [Start("topics"), Start("dashboard")]
    fleet = fleet.started("topics", 1).started("dashboard", 1)
    assert fleet.misses("cdc.shop") == ("topics",)
    fleet = fleet.ended("topics", 0, 2)
    assert fleet.of("topics").phase is Phase.DONE
    assert fleet.decide(2) == [Start("cdc.shop"), Start("pipelines.sums")]


def test_who_fails_is_started_again_after_a_growing_pause() -> None:
    fleet, now, pauses = running(BROKER, DASHBOARD, rules=Rules(restarts=6, longest_pause_s=4)), 0.0, []
    for _ in range(6):
        fleet = fleet.ended("dashboard", -9, now)
        standing = fleet.of("dashboard")
        pauses.append(standing.retry_at_s - now)
        assert fleet.decide(standing.retry_at_s - 0.01) == []
        now = standing.retry_at_s
        assert fleet.decide(now) == [Start("dashboard")]
        fleet = fleet.started("dashboard", now).ready("dashboard", now)
    assert pauses == [0.5, 1, 2, 4, 4, 4]
    fleet = fleet.ended("dashboard", 1, now)
    assert fleet.of("dashboard").phase is Phase.FAILED
    assert fleet.decide(now + 100) == []  # the others go on
    assert fleet.exit_code == 1


def test_who_ran_steadily_begins_a_new_row_of_failures() -> None:
    fleet = running(BROKER, DASHBOARD, rules=Rules(restarts=1, steady_s=60))
    fleet = fleet.ended("dashboard", 1, 10).started("dashboard", 11).ready("dashboard", 11)
    assert fleet.ended("dashboard", 1, 70).of("dashboard").phase is Phase.FAILED
    again = fleet.ended("dashboard", 1, 71).of("dashboard")
    assert (again.phase, again.failures) == (Phase.PAUSING, 1)


def test_a_wrong_call_is_given_up_at_once() -> None:
    assert running(BROKER, DASHBOARD).ended("dashboard", 2, 1).of("dashboard").phase is Phase.FAILED


def test_who_may_end_is_done_and_others_are_not() -> None:
    fleet = running(BROKER, TOPICS, CAPTURE, DASHBOARD)
    assert fleet.ended("cdc.shop", 0, 1).of("cdc.shop").phase is Phase.DONE
    assert fleet.ended("dashboard", 0, 1).of("dashboard").phase is Phase.PAUSING


def test_nothing_goes_on_without_what_is_vital() -> None:
    fleet = running(BROKER, DASHBOARD, rules=Rules(restarts=0)).ended("broker", 1, 5)
    (drain,) = fleet.decide(5)
    assert isinstance(drain, Drain)
    assert "broker" in drain.reason
    fleet = fleet.told_to_end()
    assert fleet.decide(5) == [Terminate("dashboard")]
    assert fleet.ended("dashboard", 0, 6).decide(6) == [End(1)]


def test_who_depends_on_one_that_restarts_waits_for_it() -> None:
    fleet = running(BROKER, DASHBOARD).ended("broker", -9, 1).ended("dashboard", 1, 1)
    assert fleet.decide(1.5) == [Start("broker")]
    fleet = fleet.started("broker", 1.5)
    assert fleet.decide(9) == []
    assert fleet.ready("broker", 9).decide(9) == [Start("dashboard")]


def test_all_is_drained_in_the_reverse_order() -> None:
    fleet, order = running(*ALL).told_to_end(), []
    while not isinstance((actions := fleet.decide(1))[0], End):
        for action in actions:
            assert isinstance(action, Terminate)
            order.append(action.name)
            fleet = fleet.asked_to_end(action.name, 1)
            assert fleet.decide(1) == []
            fleet = fleet.ended(action.name, 0, 1)
    assert order == ["dashboard", "pipelines.sums", "cdc.shop", "broker"]
    assert actions == [End(0)]


def test_who_takes_too_long_to_end_is_killed_once() -> None:
    fleet = running(BROKER, DASHBOARD, rules=Rules(drain_s=30)).told_to_end().asked_to_end("dashboard", 0)
    assert fleet.decide(29) == []
    assert fleet.decide(30) == [Kill("dashboard")]
    fleet = fleet.killed("dashboard")
    assert fleet.decide(31) == []
    assert fleet.ended("dashboard", -9, 31).asked_to_end("broker", 31).ended("broker", 0, 32).decide(32) == [End(1)]


def test_the_second_order_ends_all_at_once() -> None:
    fleet = running(*ALL).told_to_end().asked_to_end("dashboard", 0).told_to_end()
    assert fleet.decide(0) == [Kill(name) for name in ("dashboard", "pipelines.sums", "cdc.shop", "broker")]


def test_a_stack_whose_work_is_done_ends() -> None:
    job = Post("pipelines.once", 3, may_end=True)
    assert running(job).ended("pipelines.once", 0, 1).decide(1) == [End(0)]
    lost = Post("dashboard", 4, ("pipelines.once",))
    assert Fleet((job, lost), Rules(restarts=0)).started("pipelines.once", 0).ended("pipelines.once", 1, 1).decide(
        1
    ) == [End(1)]


POSTS = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.booleans(), st.sets(st.integers(0, 4))), min_size=1, max_size=5
)


@examples(80)
@given(POSTS, st.randoms(use_true_random=False), st.integers(5, 60))
def test_whatever_happens_the_rules_hold(
    described: list[tuple[bool, bool, bool, set[int]]], chance: random.Random, steps: int
) -> None:
    posts = tuple(
        Post(
            f"m{number}",
            number // 2,
            tuple(f"m{need}" for need in sorted(needs) if need < number),
            task,
            may,
            vital,
        )
        for number, (task, may, vital, needs) in enumerate(described)
    )
    fleet = Fleet(posts, Rules(restarts=2, first_pause_s=1, longest_pause_s=4, steady_s=10, drain_s=5))
    now, failures, is_over = 0.0, dict.fromkeys((post.name for post in posts), 0), False
    for step in range(steps + 400):
        if step == steps:
            fleet = fleet.told_to_end()
        for action in fleet.decide(now):
            match action:
                case Start(name):
                    assert not fleet.is_ending
                    assert fleet.of(name).phase not in ALIVE
                    assert all(fleet.of(need).phase in FINE for need in _post(posts, name).needs)
                    fleet = fleet.started(name, now)
                case Terminate(name):
                    later = [post for post in posts if post.rank > _post(posts, name).rank]
                    assert not any(fleet.of(post.name).phase in ALIVE for post in later)
                    fleet = fleet.asked_to_end(name, now)
                case Kill(name):
                    assert fleet.is_hurried or now - fleet.of(name).since_s >= 5  # told twice: Drain, and from outside
                    fleet = fleet.killed(name).ended(name, -9, now)
                case Drain():
                    fleet = fleet.told_to_end()
                case End(code):
                    is_over = True
                    assert not any(fleet.of(post.name).phase in ALIVE for post in posts)
                    assert code == fleet.exit_code
        if is_over:
            return
        now += chance.choice([0.2, 1.0, 3.0])
        for post in posts:
            if fleet.of(post.name).phase in ALIVE and chance.random() < 0.4:
                code = chance.choice([0, 0, 1, 2, -9])
                fleet = fleet.ended(post.name, code, now) if chance.random() < 0.5 else fleet.ready(post.name, now)
            failures[post.name] = fleet.of(post.name).failures
            assert failures[post.name] <= 3
    raise AssertionError("it never ended")


def _post(posts: tuple[Post, ...], name: str) -> Post:
    return next(post for post in posts if post.name == name)
