"""From what members want to what each is to have: regular expressions, the group's epoch, the target assignment.

The group's epoch grows whenever something has changed that the target assignment depends on: who the members are, what
they want, or the topics that they want.

An expression stands for the topics that match it, as far as the member may know of them by whose heartbeat it is
resolved (as in Kafka): nobody learns by an expression what he may not ask for by name. Where nobody asks, as when a
session has expired, it is left for the next heartbeat.
"""

from collections import Counter

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.expression import Expression, InvalidExpression
from headrace.coordinator.group.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Subscriber
from headrace.coordinator.group.consumer import facts
from headrace.coordinator.group.consumer.state import ConsumerGroup, TopicsSeen
from headrace.coordinator.group.heartbeats import Draft, Refusal
from headrace.coordinator.group.topics import Topics
from headrace.protocol.errors import ErrorCode


def check_expression(text: str | None) -> None:
    if text:
        try:
            Expression(text)
        except InvalidExpression as error:
            raise Refusal(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex {text!r} is not a regular expression that can be resolved: {error}",
            ) from None


def update_epoch(draft: Draft[ConsumerGroup], topics: Topics, now_ms: int, *, has_changed: bool) -> None:
    """Bump the group's epoch if its members or what they want has changed, or the topics that they want."""
    group = draft.group
    have_topics_changed = group.topics_seen != topics.version
    if not (has_changed or have_topics_changed):
        return
    is_resolved = _resolve_expressions(draft, topics, now_ms, again=have_topics_changed)
    fingerprint = topics.fingerprint(draft.group.all_topic_names())
    if has_changed or fingerprint != group.metadata_hash:
        draft.write(facts.group_epoch(group.group_id, group.epoch + 1, fingerprint))
        if group.has_legacy_topics:
            draft.write(facts.no_legacy_topics(group.group_id))
    if have_topics_changed and is_resolved:
        draft.write(CoordinatorRecord(TopicsSeen(group.group_id), topics.version, is_kept=False))


def _resolve_expressions(draft: Draft[ConsumerGroup], topics: Topics, now_ms: int, *, again: bool) -> bool:
    """Bring expressions up to date; whether all of them are."""
    group, sees = draft.group, draft.sees
    wanted = {member.profile.topic_regex for member in group.members.values()} - {None}
    is_resolved = True
    for text in sorted(text for text in wanted if text is not None):
        if not again and text in group.expressions:
            continue
        if sees is None:
            is_resolved = False
            continue
        try:
            matches = Expression(text).matches
        except InvalidExpression:  # a group that another broker has written; it matches nothing here
            continue
        names = frozenset(name for name in topics.by_name if matches(name) and sees(name))
        if names != group.expressions.get(text):
            draft.write(facts.resolved_expression(group.group_id, text, names, topics.version, now_ms))
    for text in sorted(group.expressions.keys() - wanted):
        draft.write(facts.no_expression(group.group_id, text))
    return is_resolved


def update_target(draft: Draft[ConsumerGroup], topics: Topics, now_ms: int) -> None:
    """Compute the target assignment anew if it is older than the group's epoch, and write what has changed."""
    group = draft.group
    if group.epoch <= group.assignment_epoch:
        return
    wanted = {}
    for member in group.members.values():
        if member.profile.subscription not in wanted:
            wanted[member.profile.subscription] = topics.ids_of(group.topic_names(member))
    subscribers = {
        member_id: Subscriber(wanted[member.profile.subscription], group.target(member_id), member.profile.instance_id)
        for member_id, member in group.members.items()
    }
    counts = topics.partition_counts(frozenset().union(*wanted.values()))
    for member_id, target in ASSIGNORS[preferred_assignor(group)](subscribers, counts).items():
        if target != group.targets.get(member_id):
            draft.write(facts.target_assignment(group.group_id, member_id, target))
    draft.write(facts.assignment_epoch(group.group_id, group.epoch, now_ms))


def preferred_assignor(group: ConsumerGroup) -> str:
    """The assignor that most members name, of those that are known here."""
    named = Counter(member.profile.assignor for member in group.members.values() if member.profile.assignor)
    known = [name for name in named if name in ASSIGNORS]
    return max(known, key=lambda name: (named[name], name == DEFAULT_ASSIGNOR, name), default=DEFAULT_ASSIGNOR)
