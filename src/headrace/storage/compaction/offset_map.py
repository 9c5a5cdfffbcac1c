"""The latest offset of each key in the part of a log that is being cleaned."""

from hashlib import blake2b

_KEPT_WHOLE = 32  # bytes; a longer key stands as a digest that is longer than any key kept whole, so none collides


class OffsetMap:
    """Keys to offsets, of bounded size: a pass cleans as far as the map reaches, and the next one goes on."""

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1  # everything up to here is in the map

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether the next batch must wait for the next pass."""
        return len(self._offsets) >= self._max_keys

    def put(self, key: bytes, offset: int) -> None:
        """Note that `key` was written at `offset`, behind all noted before."""
        self._offsets[key if len(key) <= _KEPT_WHOLE else _digest(key)] = offset

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Whether a later record has the same key."""
        return self._offsets.get(key if len(key) <= _KEPT_WHOLE else _digest(key), -1) > offset


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_KEPT_WHOLE + 1).digest()
