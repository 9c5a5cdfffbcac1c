"""Several decisions as one."""

from headrace.coordinator.decision import Decision


def together(*decisions: Decision) -> Decision:
    """One decision with all that these say, in their order."""
    return Decision(
        tuple(answer for decision in decisions for answer in decision.answers),
        tuple(record for decision in decisions for record in decision.records),
        tuple(timer for decision in decisions for timer in decision.timers),
        tuple(effect for decision in decisions for effect in decision.effects),
    )
