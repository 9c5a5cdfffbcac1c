"""What goes wrong with events, commands and stores of events. Whoever raises one of these has written nothing."""

from headrace.errors import HeadraceError


class EventSourcingError(HeadraceError):
    """Anything that the event store, or what is built on it, noticed."""


class Conflict(EventSourcingError):
    """A stream is not at the version that the writer expected: another writer was first."""

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(
            f"stream {stream!r} is at version {actual}, and version {expected} was expected: another writer was first; "
            "load it again and decide again"
        )
        self.stream = stream
        self.expected = expected
        self.actual = actual


class BoundaryConflict(Conflict):
    """An event that matches the condition's query was appended after the position that the writer had read up to."""

    def __init__(self, query: object, after: int, position: int) -> None:
        EventSourcingError.__init__(
            self,
            f"an event at position {position} matches {query}, which was read up to position {after}: another "
            "writer was first; read again and decide again",
        )
        self.stream = ""
        self.query = query
        self.expected = after
        self.actual = position


class Refused(EventSourcingError):
    """A command that the current state does not allow; the text is the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class InvalidAppend(EventSourcingError):
    """Events, a query or a condition that cannot be stored or asked for."""


class InvalidCommand(EventSourcingError):
    """A command that nobody decides about, or whose decision is not made of events."""


class InvalidEventType(EventSourcingError):
    """A class that cannot be an event as it is declared."""


class UnknownEventType(EventSourcingError):
    """A stored event whose type the code does not know."""

    def __init__(self, kind: str, where: str) -> None:
        super().__init__(
            f"{where} has the type {kind!r}, which is not registered: import its class, or declare it with @event"
        )
        self.kind = kind


class UnknownEventVersion(UnknownEventType):
    """A stored event that newer code has written."""

    def __init__(self, kind: str, where: str, found: int, known: int) -> None:
        EventSourcingError.__init__(
            self,
            f"{where} has version {found} of {kind!r}, and this code knows versions up to {known}: run code that is as "
            "new as what wrote it",
        )
        self.kind = kind
        self.found = found
        self.known = known


class UndecodableEvent(EventSourcingError):
    """A stored event, or a snapshot, that is not what its class wants."""


class ForgottenState(UndecodableEvent):
    """A snapshot that holds what was forgotten: its events are folded again."""


class ErasureRefused(EventSourcingError):
    """Events that cannot be redacted or archived, and why."""


class ArchivedEvents(EventSourcingError):
    """Events that are needed for a state and were archived."""


class InvalidSubscription(EventSourcingError):
    """A subscription that cannot be made, or that the store cannot have."""


class InvalidProjection(EventSourcingError):
    """A projection that cannot be as it is declared, or not where it is to be kept."""


class ProjectionChanged(EventSourcingError):
    """A view that other code has made than the code that is to go on with it."""


class ProjectionFailed(EventSourcingError):
    """A projection could not apply an event; the text says which, and why."""


class InvalidProcess(EventSourcingError):
    """A process that cannot be as it is declared, or wants what it cannot have."""


class ProcessFailed(EventSourcingError):
    """A process could not go on; the text says which, with what, and why."""


class ViewBehind(EventSourcingError):
    """A view did not come as far as somebody waited for."""

    def __init__(self, name: str, position: int, wanted: int, timeout_s: float) -> None:
        super().__init__(
            f"view {name!r} is at position {position}, and {wanted} was waited for, for {timeout_s:g} s: see that its "
            "runner runs, or wait longer"
        )
        self.position = position
        self.wanted = wanted


class InvalidStore(EventSourcingError):
    """An address that names no store of events."""


class StoreUnavailable(EventSourcingError):
    """The store cannot be reached now. Only here an append may be stored all the same: repeat it by its command id."""


class UnsupportedFormat(EventSourcingError):
    """A store that a newer Headrace wrote."""

    def __init__(self, where: str, found: object, known: int) -> None:
        super().__init__(
            f"{where} has format {found}, and this Headrace knows formats up to {known}: install a newer one"
        )
        self.found = found
        self.known = known
