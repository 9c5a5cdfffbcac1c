"""Who this broker is, across restarts: its cluster's id, how often it has started, the producer ids it gave out."""

import base64
import json
import secrets
from dataclasses import asdict, dataclass, fields, replace
from threading import Lock
from uuid import uuid4

from headrace.broker.errors import BrokerError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Uuid
from headrace.storage.atomic_file import write_atomically
from headrace.storage.errors import refusal
from headrace.storage.filesystem import FileSystem

_FILE = "broker.json"
_META = "meta.properties"
_HIDDEN = "broker.secret"  # in a file of its own: earlier versions refuse a `broker.json` with more in it
_HIDDEN_BYTES = 32
_BLOCK = 1000  # producer ids reserved at a time, so that giving one out seldom waits for the disk


@dataclass(frozen=True, slots=True)
class _State:
    cluster_id: str
    directory_id: str
    starts: int = 0
    next_producer_id: int = 0


class Identity:
    """Read and counted up at the start; written durably before anything of it is used."""

    def __init__(self, filesystem: FileSystem, data_dir: str, node_id: int) -> None:
        self._lock = Lock()
        self._filesystem = filesystem
        self._path = f"{data_dir}/{_FILE}"
        state = self._read() or _State(_random_id(), _random_id())
        self._write(replace(state, starts=state.starts + 1))
        self.secret = self._read_secret(f"{data_dir}/{_HIDDEN}")
        self._next_producer_id = self._reserved_to = self._state.next_producer_id
        meta = f"version=1\nnode.id={node_id}\ncluster.id={self.cluster_id}\ndirectory.id={self._state.directory_id}\n"
        write_atomically(filesystem, f"{data_dir}/{_META}", meta.encode())

    @property
    def cluster_id(self) -> str:
        """The cluster's id, made once."""
        return self._state.cluster_id

    @property
    def directory_id(self) -> Uuid:
        """The data directory's id, made once."""
        return Uuid(base64.urlsafe_b64decode(self._state.directory_id + "=="))

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this start writes: a client that read what a crash cut off notices by it (KIP-320)."""
        return self._state.starts - 1

    def next_producer_id(self) -> int:
        """A producer id that was never given out before."""
        with self._lock:  # asked for on the event loop and in threads
            if self._next_producer_id == self._reserved_to:
                reserved_to = self._reserved_to + _BLOCK
                try:
                    self._write(replace(self._state, next_producer_id=reserved_to))
                except OSError as error:
                    raise refusal(self._path, error) from error
                self._reserved_to = reserved_to  # only now: ids of a block that is not on the disk come again
            self._next_producer_id += 1
            return self._next_producer_id - 1

    def _read(self) -> _State | None:
        if not self._filesystem.exists(self._path):
            return None
        try:
            content = json.loads(self._filesystem.read(self._path))
            # A later version may have written more, which is nothing to this one.
            state = _State(**{field.name: content[field.name] for field in fields(_State) if field.name in content})
            base64.urlsafe_b64decode(state.directory_id + "==")
            if not (type(state.cluster_id) is str and state.starts >= 0 and state.next_producer_id >= 0):
                raise ValueError("its values cannot be")
            return state
        except (ValueError, TypeError) as error:
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self._path} is damaged ({error}): restore it from a copy of the data directory; it holds which "
                "producer ids were given out",
            ) from error

    def _read_secret(self, path: str) -> bytes:
        """Known to this broker alone, and the same after a restart: what hides which users there are is made of it.

        One that is lost or damaged is made anew, and nothing else depends on it.
        """
        if self._filesystem.exists(path) and len(kept := self._filesystem.read(path)) == _HIDDEN_BYTES:
            return kept
        made = secrets.token_bytes(_HIDDEN_BYTES)
        write_atomically(self._filesystem, path, made)
        return made

    def _write(self, state: _State) -> None:
        write_atomically(self._filesystem, self._path, json.dumps(asdict(state)).encode())
        self._state = state


def _random_id() -> str:
    return base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
