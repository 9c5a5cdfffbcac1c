"""Who a broker is, read from its directory: by this version, by one before it and by one after it."""

import json

import pytest

from headrace.broker.errors import BrokerError
from headrace.broker.identity import Identity
from headrace.testing import MemoryFileSystem


def _file(filesystem: MemoryFileSystem, name: str, content: bytes) -> None:
    filesystem.make_directory("data")
    filesystem.open(f"data/{name}", create=True).write_at([content], 0)


def test_it_is_the_same_after_a_restart_and_every_start_has_an_epoch() -> None:
    filesystem = MemoryFileSystem()
    filesystem.make_directory("data")
    first, second = Identity(filesystem, "data", 1), Identity(filesystem, "data", 1)
    assert (first.cluster_id, first.directory_id, first.secret) == (
        second.cluster_id,
        second.directory_id,
        second.secret,
    )
    assert (first.leader_epoch, second.leader_epoch) == (0, 1)
    assert len(first.secret) == 32


def test_what_a_later_version_wrote_besides_is_passed_over() -> None:
    filesystem = MemoryFileSystem()
    state = {"cluster_id": "c", "directory_id": "d" * 22, "starts": 7, "next_producer_id": 2000, "newer": [1]}
    _file(filesystem, "broker.json", json.dumps(state).encode())
    identity = Identity(filesystem, "data", 1)
    assert (identity.cluster_id, identity.leader_epoch, identity.next_producer_id()) == ("c", 7, 2000)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"null",
        b"{}",
        b'{"cluster_id": 1, "directory_id": "dddddddddddddddddddddd"}',
        b'{"cluster_id": "c", "directory_id": 5}',
        b'{"cluster_id": "c", "directory_id": "dddddddddddddddddddddd", "starts": "7"}',
        b'{"cluster_id": "c", "directory_id": "dddddddddddddddddddddd", "starts": -1}',
        b'{"cluster_id": "c", "directory_id": "dddddddddddddddddddddd", "next_producer_id": null}',
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(content: bytes) -> None:
    filesystem = MemoryFileSystem()
    _file(filesystem, "broker.json", content)
    with pytest.raises(BrokerError, match=r"data/broker.json is damaged .*: restore it from a copy"):
        Identity(filesystem, "data", 1)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_damaged_secret_is_made_anew(content: bytes) -> None:
    filesystem = MemoryFileSystem()
    _file(filesystem, "broker.secret", content)
    assert len(Identity(filesystem, "data", 1).secret) == 32
