"""The members of a share group under hypothesis: they join, beat, change their minds, leave, fall silent, at any time.

After every step: epochs only grow, and a member is assigned only what it wants and what is there. Once everybody who
lives has been heard of: every partition that somebody wants is assigned to somebody, and everybody has something, if
there is something that it wants. A restart changes none of it.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.coordinator.group.settings import GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from headrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.group_requests import heartbeat, join
from tests.group_shell import GroupShell
from tests.property.storage_model import examples

GROUP = "g"
SESSION_MS = 1_000
MAX_SIZE = 4
TOPICS = st.dictionaries(st.sampled_from("abc"), st.integers(1, 4), max_size=3)
WANTED = st.frozensets(st.sampled_from("abc"), max_size=3)
NAMES = ["ann", "bob", "cid", "dan", "eve", "fay"]


class Sharer:
    def __init__(self, wanted):
        self.wanted = wanted
        self.epoch = 0
        self.assigned = {}


class ShareMembers(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        settings = GroupSettings(group_share_session_timeout_ms=SESSION_MS, group_share_max_size=MAX_SIZE)
        self.topics = {"a": 2, "b": 1}
        self.shell = GroupShell(settings, topics=self.topics)
        self.members = {}
        self.epoch = 0

    def beat(self, name, epoch, wanted=None):
        asked = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=name,
            member_epoch=epoch,
            subscribed_topic_names=None if wanted is None else sorted(wanted),
        )
        return self.shell.ask(asked, 1)

    def note(self, name, answer):
        member = self.members[name]
        assert answer.error_code == ErrorCode.NONE
        assert answer.member_epoch >= member.epoch
        member.epoch = answer.member_epoch
        if answer.assignment is not None:
            member.assigned = {
                topic.topic_id.decode().strip(): set(topic.partitions) for topic in answer.assignment.topic_partitions
            }

    @rule(name=st.sampled_from(NAMES), wanted=WANTED)
    def join(self, name, wanted):
        answer = self.beat(name, 0, wanted)
        if name not in self.members and len(self.members) >= MAX_SIZE:
            assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
            return
        self.members[name] = Sharer(wanted)
        self.note(name, answer)
        assert answer.assignment is not None

    @rule(name=st.sampled_from(NAMES), wanted=st.none() | WANTED)
    def go_on(self, name, wanted):
        if name not in self.members:
            assert self.beat(name, 3).error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
            return
        if wanted is not None:
            self.members[name].wanted = wanted
        self.note(name, self.beat(name, self.members[name].epoch, wanted))

    @rule(name=st.sampled_from(NAMES))
    def be_in_another_epoch(self, name):
        if name in self.members:
            assert self.beat(name, self.members[name].epoch + 7).error_code == ErrorCode.FENCED_MEMBER_EPOCH

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name):
        if name in self.members:
            assert self.beat(name, -1).error_code == ErrorCode.NONE
            del self.members[name]

    @rule(silent=st.frozensets(st.sampled_from(NAMES)))
    def fall_silent(self, silent):
        for _ in range(2):
            self.shell.advance(SESSION_MS * 2 // 3)
            for name in self.members.keys() - silent:
                self.note(name, self.beat(name, self.members[name].epoch))
        self.members = {name: member for name, member in self.members.items() if name not in silent}

    @rule(topics=TOPICS)
    def change_topics(self, topics):
        # Partitions only grow, and what is made again has another id, which these names do not show.
        self.topics = {name: max(count, self.topics.get(name, 0)) for name, count in topics.items()}
        self.shell.set_topics(self.topics)

    @rule()
    def restart(self):
        self.shell.restart()

    @rule()
    def speak_as_others_do(self):
        """A share group is no other kind of group, and nobody makes it one."""
        if self.epoch:
            assert self.shell.ask(join("m", group=GROUP), 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            assert self.shell.ask(heartbeat("m", 1, group=GROUP), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert self.listed() == "share"

    @rule()
    @precondition(lambda self: self.epoch)
    def delete(self):
        (result,) = self.shell.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results
        if self.members:
            assert result.error_code == ErrorCode.NON_EMPTY_GROUP
        else:
            assert result.error_code == ErrorCode.NONE
            assert self.listed() is None
            self.epoch = 0

    def listed(self):
        groups = self.shell.ask(ListGroupsRequest(), 5).groups
        return next((group.group_type for group in groups if group.group_id == GROUP), None)

    @rule()
    def hear_of_everybody(self):
        for _ in range(2):  # the second time everybody has what the first has changed
            for name, member in self.members.items():
                self.note(name, self.beat(name, member.epoch, member.wanted))
        there = set(self.topics)
        for name, member in self.members.items():
            assert member.assigned.keys() <= member.wanted & there
            for topic, partitions in member.assigned.items():
                assert partitions <= set(range(self.topics[topic]))
            assert bool(member.assigned) == bool(member.wanted & there), name
        wanted = set().union(*(member.wanted for member in self.members.values())) & there
        assigned = {
            (topic, index)
            for member in self.members.values()
            for topic, indexes in member.assigned.items()
            for index in indexes
        }
        assert assigned == {(topic, index) for topic in wanted for index in range(self.topics[topic])}

    @invariant()
    def epochs_only_grow(self):
        (group,) = self.shell.ask(ShareGroupDescribeRequest(group_ids=[GROUP]), 1).groups
        if group.error_code:
            assert not self.members
            return
        assert group.group_epoch >= self.epoch
        self.epoch = group.group_epoch
        assert group.group_state == ("Stable" if self.members else "Empty")
        assert {member.member_id for member in group.members} == self.members.keys()


TestShareMembers = ShareMembers.TestCase
TestShareMembers.settings = examples(100, stateful_step_count=30)
