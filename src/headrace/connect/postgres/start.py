"""Where to begin, decided from the stored position, the slot and the snapshot mode. Pure."""

from dataclasses import dataclass
from enum import Enum

from headrace.connect.change import Position
from headrace.connect.errors import SourceRefused
from headrace.connect.postgres.positions import LogPosition, format_lsn
from headrace.connect.postgres.slot import SlotState, slot_lost


class Begin(Enum):
    """How a source begins."""

    SNAPSHOT = "a new slot, and every row"
    NEW_SLOT = "a new slot, and only what comes"
    STREAM = "the log, on from where it was"
    ENDED = "nothing, it has all been read"


@dataclass(frozen=True, slots=True)
class Start:
    """How to begin, and whether a slot that stands in the way goes first."""

    begin: Begin
    drop_slot: bool = False
    lsn: int = 0


def decide_start(
    position: Position | None, slot: SlotState | None, mode: str, name: str, *, goes_on: bool = False
) -> Start:
    """How to begin; refuses where changes would be missing and nobody allowed a new snapshot."""
    if position is None:
        if slot is not None and (goes_on or mode == "never"):
            if slot.is_lost:
                raise slot_lost(name)
            return Start(Begin.STREAM, lsn=slot.confirmed_lsn)
        if mode == "never":
            return Start(Begin.NEW_SLOT)
        # A slot without a position is left from a start that did not come far: nothing was written yet.
        return Start(Begin.SNAPSHOT, drop_slot=slot is not None)
    if position.get("ended"):
        return Start(Begin.ENDED)
    here = LogPosition.from_json(position)
    if slot is not None and not slot.is_lost and slot.confirmed_lsn <= here.lsn:
        return Start(Begin.STREAM, lsn=here.lsn)
    if mode == "when-needed":
        return Start(Begin.SNAPSHOT, drop_slot=slot is not None)
    if slot is None:
        raise SourceRefused(
            f"slot {name} is gone, and with it the log behind {format_lsn(here.lsn)}, so changes are missing and only "
            "a new snapshot brings them",
            "start with snapshot='when-needed'",
        )
    if slot.is_lost:
        raise slot_lost(name)
    raise SourceRefused(
        f"slot {name} stands at {format_lsn(slot.confirmed_lsn)}, beyond the stored position {format_lsn(here.lsn)}: "
        "another reader used it, and changes are missing here",
        "give each reader a slot of its own, and start with snapshot='when-needed'",
    )
