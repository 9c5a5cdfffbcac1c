"""Which partition a record goes to, exactly as Kafka's Java client decides it.

A key always goes to the same partition, whatever client wrote it: murmur2 of its bytes, the sign bit dropped, modulo
the number of partitions. Records without a key stick to one partition for as many bytes as the Java client's batch has,
then to another (KIP-480, KIP-794): fewer, fuller batches than with a partition for each.
"""

from random import Random

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
STICKY_BYTES = 16 * 1024  # the Java client's batch.size


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, as an unsigned number of 32 bits; Java shows the same bits signed."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        h = (h * _M ^ (k ^ k >> 24) * _M) & _MASK
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioner:
    """Chooses for each record; keeps the partition that records without a key stick to."""

    def __init__(self, partitions: int, random: Random | None = None) -> None:
        self._partitions = partitions
        self._random = random or Random()  # noqa: S311 - spreads load, guards nothing
        self._sticky = self._random.randrange(partitions)
        self._sticky_bytes = 0

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        """The partition for a record with this key and of this size."""
        if key is not None:
            return partition_of_key(key, self._partitions)
        if self._sticky_bytes >= STICKY_BYTES and self._partitions > 1:
            other = self._random.randrange(self._partitions - 1)
            self._sticky = other + (other >= self._sticky)
            self._sticky_bytes = 0
        self._sticky_bytes += size_bytes
        return self._sticky
