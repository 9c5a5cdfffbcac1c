"""AlterUserScramCredentials (API 51): give users passwords, or take them away (KIP-554)."""

from headrace.protocol import schema as wire


class ScramCredentialDeletion(wire.Struct):
    name: str = wire.string()
    mechanism: int = wire.int8()


class ScramCredentialUpsertion(wire.Struct):
    """The password is not sent, but what PBKDF2 makes of it."""

    name: str = wire.string()
    mechanism: int = wire.int8()
    iterations: int = wire.int32()
    salt: bytes = wire.blob()
    salted_password: bytes = wire.blob()


class AlterUserScramCredentialsRequest(wire.Message, api_key=51, versions=range(1), flexible_since=0):
    deletions: list[ScramCredentialDeletion] = wire.array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = wire.array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(wire.Struct):
    user: str = wire.string()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()


class AlterUserScramCredentialsResponse(wire.Message, api_key=51, versions=range(1), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    results: list[AlterUserScramCredentialsResult] = wire.array(AlterUserScramCredentialsResult)
