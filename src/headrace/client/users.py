"""Users who log in by a password, on any Kafka: add them, list them, remove them (KIP-554).

A password is salted and hashed here: it is not sent, and the broker does not learn it.
"""

import os
from collections.abc import Mapping, Sequence

from headrace.client.cluster import Cluster
from headrace.client.errors import Refused
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from headrace.security.scram import FEWEST_ROUNDS, NUMBERS, SALT_BYTES, salt_password

_MECHANISMS = {number: name for name, number in NUMBERS.items()}


def list_users(cluster: Cluster, names: Sequence[str] = ()) -> dict[str, dict[str, int]]:
    """Users by name, each with its mechanisms and their iterations; those named, or all."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] or None)

    def ask() -> dict[str, dict[str, int]]:
        response = cluster.any_broker().request(request, DescribeUserScramCredentialsResponse)
        _check(cluster, "list users", response.error_code, response.error_message)
        users = {}
        for result in response.results:
            if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            _check(cluster, f"look at user {result.user!r}", result.error_code, result.error_message)
            users[result.user] = {
                _MECHANISMS.get(info.mechanism, str(info.mechanism)): info.iterations
                for info in result.credential_infos
            }
        return dict(sorted(users.items()))

    return cluster.run_with_retries(ask)


def set_password(
    cluster: Cluster, name: str, password: str, mechanisms: Sequence[str], iterations: int = FEWEST_ROUNDS
) -> None:
    """Add a user, or give one that is there another password; for one mechanism after the other."""
    for mechanism in mechanisms:
        salt = os.urandom(SALT_BYTES)
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=NUMBERS[mechanism],
            iterations=iterations,
            salt=salt,
            salted_password=salt_password(mechanism, password, salt, iterations),
        )
        _alter(cluster, f"add user {name!r}", AlterUserScramCredentialsRequest(upsertions=[upsertion]))


def remove_user(cluster: Cluster, name: str, mechanisms: Mapping[str, int]) -> None:
    """Take away what a user logs in with, as `list_users` told it."""
    for mechanism in mechanisms:
        deletion = ScramCredentialDeletion(name=name, mechanism=NUMBERS[mechanism])
        _alter(cluster, f"remove user {name!r}", AlterUserScramCredentialsRequest(deletions=[deletion]))


def _alter(cluster: Cluster, doing: str, request: AlterUserScramCredentialsRequest) -> None:
    def ask() -> None:
        response = cluster.controller().request(request, AlterUserScramCredentialsResponse)
        for result in response.results:
            _check(cluster, doing, result.error_code, result.error_message)

    cluster.run_with_retries(ask)


def _check(cluster: Cluster, doing: str, code: int, message: str | None) -> None:
    if code:
        raise Refused(f"cannot {doing} at {cluster}", ErrorCode.of(code), message)
