"""Describe- and AlterUserScramCredentials: users who log in by a password, kept in the metadata log (KIP-554).

Each user of a request is changed once or refused, and one that is refused does not touch the others. The users of
`users.file` are not among them: they are the file's to change.
"""

from collections import Counter
from collections.abc import Iterable

from headrace.broker.errors import BrokerError
from headrace.broker.handler import Answer, Context
from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.metadata import MetadataChange, MetadataImage, record_of_credential
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from headrace.security.scram import FEWEST_ROUNDS, MOST_STORED_ROUNDS, NUMBERS, ScramCredential

MECHANISMS = {number: name for name, number in NUMBERS.items()}


def describe_users(ctx: Context, request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    credentials = ctx.broker.metadata.image.credentials
    known: dict[str, list[CredentialInfo]] = {}
    for (mechanism, name), credential in sorted(credentials.items()):
        known.setdefault(name, []).append(CredentialInfo(mechanism=NUMBERS[mechanism], iterations=credential.rounds))
    asked = Counter(user.name for user in request.users or ()) or Counter(list(known))
    results = []
    for name, times in asked.items():
        result = DescribeUserScramCredentialsResult(user=name, credential_infos=known.get(name, []))
        if times > 1:
            result.credential_infos = []
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            )
        elif name not in known:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
        results.append(result)
    return DescribeUserScramCredentialsResponse(results=results)


def alter_users(ctx: Context, request: AlterUserScramCredentialsRequest) -> Answer:
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    if ctx.refused:
        return _response({change.name: ctx.refused for change in changes})

    def decide(image: MetadataImage) -> MetadataChange:
        outcomes: dict[str, BrokerError | None] = {}
        records = []
        doubled = _find_doubled(changes)
        for change in changes:
            if change.name in doubled:  # there may be many, and to raise each takes long
                outcomes[change.name] = doubled[change.name]
                continue
            try:
                records.append(_decide(image, change))
                outcomes[change.name] = None
            except BrokerError as error:
                outcomes[change.name] = error
        return MetadataChange(_response(outcomes), records)

    return ctx.broker.metadata.change(decide)


def _find_doubled(changes: Iterable[ScramCredentialDeletion | ScramCredentialUpsertion]) -> dict[str, BrokerError]:
    text = "A user credential cannot be altered twice in the same request"
    times = Counter(change.name for change in changes)
    return {name: BrokerError(ErrorCode.DUPLICATE_RESOURCE, text) for name, count in times.items() if count > 1}


def _decide(image: MetadataImage, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> CoordinatorRecord:
    if not change.name:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = MECHANISMS.get(change.mechanism)
    if mechanism is None:
        raise BrokerError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if (mechanism, change.name) not in image.credentials:
            text = "Attempt to delete a user credential that does not exist"
            raise BrokerError(ErrorCode.RESOURCE_NOT_FOUND, text)
        return record_of_credential(mechanism, change.name, None)
    if change.iterations < FEWEST_ROUNDS:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MOST_STORED_ROUNDS:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    salted, salt = bytes(change.salted_password), bytes(change.salt)
    credential = ScramCredential.from_salted(mechanism, salted, salt, change.iterations)
    return record_of_credential(mechanism, change.name, credential)


def _response(outcomes: dict[str, BrokerError | None]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=name,
                error_code=error.code if error else ErrorCode.NONE,
                error_message=str(error) if error else None,
            )
            for name, error in outcomes.items()
        ]
    )
