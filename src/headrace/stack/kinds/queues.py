"""`[queues.NAME]`: a function that is run for each message of a queue, with the keys of `headrace work`."""

import subprocess
import sys
from collections.abc import Iterable
from typing import Final

from headrace.model import check_topic_name
from headrace.queues.message import CODECS, seconds
from headrace.queues.section import SECTION, check_function
from headrace.section_keys import Complaint, Key
from headrace.stack.kind import Kind, Member, Section, Sections, Stack, members_by_section
from headrace.stack.kinds.topics import needs

_PATIENCE_S: Final = 60


def _explore(section: Section, _others: Sections) -> Iterable[Complaint]:
    """Whether the function is there."""
    return try_importing(section, "function", "headrace.queues.section", [section.values["function"]])


def try_importing(section: Section, key: str, loader: str, arguments: Iterable[str]) -> Iterable[Complaint]:
    """Whether a user's code can be imported, by a module of ours that says what is wrong, in a process of its own."""
    command = [sys.executable, "-P", "-m", loader, *arguments]
    try:
        done = subprocess.run(
            command, cwd=section.folder, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        sentence = "its module does not end when it is imported: what runs long belongs into a function"
        yield (key,), f"[{section.where}] {key}: {sentence}"
        return
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["it ended without a word"]
        yield (key,), f"[{section.where}] {words[-1]}"


def _members(stack: Stack) -> Iterable[Member]:
    return members_by_section(stack, SECTION, ("work",), needs(stack))


def _duration(name: str, meaning: str, default: str | None = None) -> Key:
    return Key(name, str, meaning, default, check=lambda value: seconds(value, name))


KIND = Kind(
    SECTION,
    "A function that is run for each message of a queue.",
    """
# [queues.emails]
# function = "mailer:send"        # the function send of mailer.py, beside this file
# concurrency = 8
# timeout = "30s"
""",
    (
        Key("function", str, "The function, as MODULE:NAME.", is_needed=True, check=check_function),
        Key("topic", str, "The queue's topic; by default one with the section's name.", check=check_topic_name),
        Key("group", str, "The share group that takes from it; by default one with the topic's name."),
        Key("values", str, "What its values are.", "json", choices=tuple(CODECS)),
        Key("concurrency", int, "How many messages are worked on at a time.", 8, least=1),
        _duration("timeout", "How long the function may take for one of them.", "30s"),
        _duration("retry_after", "How long a message that failed waits; twice as long each time.", "1s"),
        _duration("grace", "How long what runs may go on when the worker is stopped.", "30s"),
        Key(
            "results",
            str,
            "A queue for what the function returns, put in one transaction with the message's acknowledgement.",
            check=check_topic_name,
        ),
        Key("prefetch", int, "How many messages are held at the most, waiting or being worked on.", 16, least=1),
        _duration("lock", "How long a message is locked before that must be renewed; the group's setting."),
        Key("max_deliveries", int, "How often a message is delivered at the most; the group's setting.", least=2),
        Key("partitions", int, "Of a topic that is made.", least=1),
        Key("priorities", int, "Levels of urgency of a topic that is made.", least=1),
    ),
    is_named=True,
    members=_members,
    explore=_explore,
)
