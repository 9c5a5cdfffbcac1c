"""What a member of a share group says of the records that it has, and why that can be refused.

What always holds: an acknowledgement that `check_form` lets through has one type, or one for each of its offsets.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode

AS_SET = -1  # the group's settings say how long
MOST_REASON_BYTES = 1024


class AckType(IntEnum):
    """What a member says of a record that it has; the numbers are those of the wire."""

    GAP = 0  # there is no record at this offset: compaction took it, or it is a marker
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4  # it goes on working, and needs the lock for longer (KIP-1222)


class Acknowledgement(NamedTuple):
    """What a member says of the offsets from first to last: one type for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]
    retry_after_ms: int = AS_SET  # of what is released: when it may be delivered again
    reason: str = ""  # why it is released or rejected
    is_unseen: bool = False  # what is released was fetched ahead, and nobody has seen it: that delivery does not count

    def stretches(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """First offset, last offset and type of each stretch between two offsets that has one type."""
        if len(self.types) == 1:
            return [(first, last, self.types[0])]
        found: list[tuple[int, int, int]] = []
        for offset in range(first, last + 1):
            ack = self.types[offset - self.first]
            if found and found[-1][2] == ack:
                found[-1] = (found[-1][0], offset, ack)
            else:
                found.append((offset, offset, ack))
        return found


class InvalidAcknowledgement(HeadraceError):
    """An acknowledgement of what the member does not have; nothing of its partition is acknowledged."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def check_form(batch: Acknowledgement) -> None:
    """Refuse what makes no sense, whatever the records' states are."""
    first, last, types, retry_after_ms, said, _ = batch
    if first > last or first < 0:
        reason = f"its offsets {first} to {last} are not a range"
    elif len(types) not in (1, last - first + 1):
        reason = (
            f"there are {len(types)} types for the {last - first + 1} offsets from {first} on: give one, or one each"
        )
    elif not all(AckType.GAP <= ack <= AckType.RENEW for ack in types):
        reason = f"the types {sorted(set(types))} are not all known: give 0 to 4"
    elif retry_after_ms < AS_SET:
        reason = f"a record cannot be delivered again {retry_after_ms} ms from now: give 0 or more"
    elif len(said) > MOST_REASON_BYTES or len(said.encode(errors="replace")) > MOST_REASON_BYTES:
        reason = f"its reason is longer than {MOST_REASON_BYTES} bytes: cut it"
    else:
        return
    raise InvalidAcknowledgement(ErrorCode.INVALID_REQUEST, f"an acknowledgement is invalid: {reason}")


def not_acquired(first: int, last: int) -> InvalidAcknowledgement:
    return InvalidAcknowledgement(
        ErrorCode.INVALID_RECORD_STATE,
        f"the member has not acquired the records {first} to {last}, or its lock has lapsed",
    )
