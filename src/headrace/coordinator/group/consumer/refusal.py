"""Why a request to a consumer group is refused."""

from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode


class Refusal(HeadraceError):
    """The request is answered with this error, and nothing changes."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def fenced(message: str) -> Refusal:
    """The member has to give up all its partitions and to join again."""
    return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, f"{message}; give up all partitions and join again")


def invalid(message: str) -> Refusal:
    """The request makes no sense, whatever the group's state is."""
    return Refusal(ErrorCode.INVALID_REQUEST, message)
