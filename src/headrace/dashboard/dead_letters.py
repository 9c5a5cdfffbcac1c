"""Which topics hold dead letters, of which topic, and who writes them. Pure.

Jobs report the topics that take what they cannot decode. Derived systems write to the topic that ends in
`.dead-letters` after the one that they read.
"""

from dataclasses import dataclass, replace

from headrace.dashboard.feeds import COPIES_TOPIC
from headrace.dashboard.watch import State
from headrace.dead_letters import SUFFIX


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """One topic of dead letters."""

    source: str  # the topic whose records could not be used; empty if it is not known
    jobs: tuple[str, ...] = ()
    syncs: tuple[str, ...] = ()


def dead_letter_topics(state: State) -> dict[str, DeadLetters]:
    """The topics of dead letters that exist, by name."""
    topics = state.snapshot.topics if state.snapshot else {}
    found = {
        name: DeadLetters(name.removesuffix(SUFFIX))
        for name in topics
        if name.endswith(SUFFIX) and name.removesuffix(SUFFIX) in topics
    }
    for (job, _), reports in state.jobs.items():
        last = reports[-1]
        for name in last.dead_letter_topics:
            if name in topics:
                known = found.get(name, DeadLetters(last.topics[0] if len(last.topics) == 1 else ""))
                found[name] = replace(known, jobs=tuple(sorted({*known.jobs, job})))
    for status in state.statuses.get(COPIES_TOPIC, {}).values():
        name = status.text("dead_letters_topic") or status.text("source") + SUFFIX
        if name in found:
            found[name] = replace(found[name], syncs=(*found[name].syncs, status.name))
    return found
