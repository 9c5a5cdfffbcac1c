"""The assignors on random groups: everything is given out once, evenly, and moves no more than it must."""

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator.group.assignors import ASSIGNORS, Subscriber, assign_shared
from headrace.protocol.schema import Uuid
from tests.property.storage_model import examples


def topic(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


TOPICS = [topic(number) for number in range(6)]
counts = st.fixed_dictionaries({}, optional={name: st.integers(0, 12) for name in TOPICS})
member_ids = st.sampled_from([f"member-{number}" for number in range(9)])
same_topics = st.frozensets(st.sampled_from(TOPICS), min_size=1).flatmap(
    lambda topics: st.dictionaries(member_ids, st.just(topics), min_size=1)
)
mixed_topics = st.dictionaries(member_ids, st.frozensets(st.sampled_from(TOPICS)), min_size=1)
groups = st.one_of(same_topics, mixed_topics)
# What a member has may be anything: of topics that are gone or that it no longer wants, or of another member too.
holdings = st.dictionaries(
    member_ids, st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 14), min_size=1))
)
assignors = st.sampled_from(sorted(ASSIGNORS))


def given_out(assignment):
    return [(name, part) for share in assignment.values() for name, parts in share.items() for part in parts]


def loads(assignment):
    return {member_id: sum(map(len, share.values())) for member_id, share in assignment.items()}


def subscribers(wanted, held=None):
    return {member_id: Subscriber(topics, (held or {}).get(member_id, {})) for member_id, topics in wanted.items()}


def moved(before, after):
    return sum(
        len(parts - after.get(who, {}).get(name, frozenset())) for who in before for name, parts in before[who].items()
    )


@examples(100)
@given(assignors, groups, counts, holdings)
def test_every_partition_goes_to_exactly_one_subscriber(name, wanted, counts, held):
    members = subscribers(wanted, held)
    assignment = ASSIGNORS[name](members, counts)
    assert assignment.keys() == members.keys()
    everything = [(t, part) for t in frozenset().union(*wanted.values()) for part in range(counts.get(t, 0))]
    assert sorted(given_out(assignment)) == sorted(everything)
    for member_id, share in assignment.items():
        assert share.keys() <= wanted[member_id]
        assert all(share.values())


@examples(100)
@given(assignors, groups, counts, holdings, st.randoms(use_true_random=False))
def test_the_order_of_mappings_does_not_matter(name, wanted, counts, held, random):
    def shuffled(mapping):
        items = list(mapping.items())
        random.shuffle(items)
        return dict(items)

    first = ASSIGNORS[name](subscribers(wanted, held), counts)
    assert ASSIGNORS[name](subscribers(shuffled(wanted), shuffled(held)), shuffled(counts)) == first


@examples(100)
@given(same_topics, counts, holdings)
def test_uniform_is_even_and_keeps_all_that_an_even_share_allows(wanted, counts, held):
    after = ASSIGNORS["uniform"](subscribers(wanted, held), counts)
    load = loads(after)
    assert max(load.values()) - min(load.values()) <= 1
    # Who had valid partitions that nobody else claims keeps them, up to the larger of the two loads.
    claims = Counter(given_out(held))
    for member_id, topics in wanted.items():
        valid = {
            (name, part)
            for name, parts in held.get(member_id, {}).items()
            if name in topics
            for part in parts
            if part < counts.get(name, 0) and claims[name, part] == 1
        }
        kept = valid & set(given_out({member_id: after[member_id]}))
        assert len(kept) >= min(len(valid), min(load.values())) - (
            len(given_out({0: held.get(member_id, {})})) - len(valid)
        )


@examples(100)
@given(mixed_topics, counts, holdings)
def test_uniform_is_as_even_as_the_subscriptions_allow(wanted, counts, held):
    """Nobody could hand a partition on, directly or through others, to somebody with at least two less."""
    after = ASSIGNORS["uniform"](subscribers(wanted, held), counts)
    load = loads(after)
    for giver in after:
        reached, queue = {giver}, [giver]
        for member_id in queue:
            for other in wanted:
                if other not in reached and wanted[other] & after[member_id].keys():
                    reached.add(other)
                    queue.append(other)
        assert load[giver] - min(load[member_id] for member_id in reached) < 2


@examples(100)
@given(groups, counts)
def test_uniform_leaves_what_it_has_made(wanted, counts):
    before = ASSIGNORS["uniform"](subscribers(wanted), counts)
    assert ASSIGNORS["uniform"](subscribers(wanted, before), counts) == before


@examples(100)
@given(same_topics, counts)
def test_a_newcomer_gets_its_share_and_nothing_else_moves(wanted, counts):
    before = ASSIGNORS["uniform"](subscribers(wanted), counts)
    grown = {**wanted, "newcomer": next(iter(wanted.values()))}
    after = ASSIGNORS["uniform"](subscribers(grown, before), counts)
    assert moved(before, after) == loads(after)["newcomer"]
    assert loads(after)["newcomer"] == sum(loads(before).values()) // len(grown)


@examples(100)
@given(same_topics.filter(lambda wanted: len(wanted) > 1), counts)
def test_when_somebody_leaves_only_its_share_moves(wanted, counts):
    before = ASSIGNORS["uniform"](subscribers(wanted), counts)
    leaver = min(wanted)
    left = {member_id: topics for member_id, topics in wanted.items() if member_id != leaver}
    after = ASSIGNORS["uniform"](subscribers(left, before), counts)
    assert moved({who: share for who, share in before.items() if who != leaver}, after) == 0


@examples(100)
@given(same_topics, st.integers(1, 12))
def test_range_gives_the_same_numbers_of_every_topic(wanted, count):
    assignment = ASSIGNORS["range"](subscribers(wanted), dict.fromkeys(TOPICS, count))
    for share in assignment.values():
        assert len(set(share.values())) <= 1
        for parts in share.values():
            assert sorted(parts) == list(range(min(parts), max(parts) + 1))


def test_range_places_static_members_by_their_instance_id():
    def shares(**ids):
        members = {who: Subscriber(frozenset(TOPICS[:1]), {}, instance) for who, instance in ids.items()}
        return ASSIGNORS["range"](members, {TOPICS[0]: 3})

    before, after = shares(a="i", b="j", c=None), shares(z="i", y="j", c=None)
    assert (before["a"], before["b"], before["c"]) == (after["z"], after["y"], after["c"])


def test_no_members_no_assignment():
    assert all(assign({}, {TOPICS[0]: 3}) == {} for assign in ASSIGNORS.values())


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@pytest.mark.parametrize("is_mixed", [False, True])
def test_the_time_grows_with_the_size_and_not_with_its_square(name, is_mixed):
    def best_of_five(members, topics):
        counts = {topic(number): 100 for number in range(topics)}
        every = sorted(counts)
        wanted = {
            f"m{who}": frozenset(t for at, t in enumerate(every) if not is_mixed or (at * 7 + who) % 5 < 3)
            for who in range(members)
        }
        before = ASSIGNORS[name](subscribers(wanted), counts)
        wanted["newcomer"] = wanted["m0"]
        taken = []
        for _ in range(5):
            start = time.process_time()
            ASSIGNORS[name](subscribers(wanted, before), counts)
            taken.append(time.process_time() - start)
        return min(taken)

    small, middle, large = best_of_five(50, 10), best_of_five(100, 20), best_of_five(200, 40)
    assert small < 0.1, "50 members and 1000 partitions take well under 100 ms"
    # Each step doubles members and partitions, and makes four times as many subscriptions; quadratic would be 16.
    assert middle < 10 * max(small, 0.001)
    assert large < 10 * max(middle, 0.001)


# --- share groups, where several members may have the same partition


@examples(200)
@given(groups, counts, holdings, st.frozensets(st.sampled_from(TOPICS), max_size=2))
def test_everybody_shares_in_something_and_every_partition_is_somebodys(wanted, counts, held, whole):
    assignment = assign_shared(subscribers(wanted, held), counts, whole)
    assert assignment.keys() == wanted.keys()
    there_of = {member_id: topics.intersection(counts) for member_id, topics in wanted.items()}
    for topics in set(there_of.values()):
        there = {(name, part) for name in topics - whole for part in range(counts.get(name, 0))}
        alike = [assignment[member_id] for member_id in wanted if there_of[member_id] == topics]
        parted = [{name: parts for name, parts in share.items() if name not in whole} for share in alike]
        takers = Counter((name, part) for share in parted for name, parts in share.items() for part in parts)
        assert takers.keys() == there
        shares = [sum(map(len, share.values())) for share in parted]
        if there:
            assert max(shares) - min(shares) <= 1
            assert max(takers.values()) - min(takers.values()) <= 1
            assert min(max(shares), max(takers.values())) == 1
        for share in alike:
            for name in topics & whole:
                assert share.get(name, frozenset()) == frozenset(range(counts.get(name, 0)))


@examples(100)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=40), st.integers(1, 6))
def test_nobody_of_a_share_group_is_moved_who_need_not_be(steps, partitions):
    """Members come and go one at a time: of many at few partitions one that leaves has one moved, who comes nobody."""
    counts = {TOPICS[0]: partitions}
    held = {}
    for comes, number in steps:
        before = dict(held)
        if comes:
            held.setdefault(f"member-{number:02}", {})
        else:
            held.pop(f"member-{number:02}", None)
        if not held:
            continue
        wanted = dict.fromkeys(held, frozenset([TOPICS[0]]))
        held = assign_shared(subscribers(wanted, held), counts)
        stayed = {who: share for who, share in before.items() if who in held and share}
        if min(len(before), len(held)) >= partitions:
            assert moved(stayed, held) <= (0 if len(held) >= len(before) else 1)
        assert held == assign_shared(subscribers(wanted, held), counts)  # and then it stays so
