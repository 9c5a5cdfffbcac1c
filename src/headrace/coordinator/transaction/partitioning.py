"""Which partition of an internal topic is a coordinator's: of the key's hash, as Java counts it."""

from functools import lru_cache

_SIGN = 1 << 31
_WRAP = 1 << 32


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 31 times the hash so far plus the next UTF-16 unit, in 32 bits."""
    total = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        total = (31 * total + (high << 8 | low)) % _WRAP
    return total - _WRAP if total >= _SIGN else total


@lru_cache(maxsize=4096)  # asked for every record that is written, and for few keys
def partition_for(key: str, partition_count: int) -> int:
    """The partition of `__transaction_state` for a transactional id, or of `__consumer_offsets` for a group."""
    hashed = java_hash(key)
    # The smallest integer has no positive counterpart in Java, where it counts as zero.
    return 0 if hashed == -_SIGN else abs(hashed) % partition_count
