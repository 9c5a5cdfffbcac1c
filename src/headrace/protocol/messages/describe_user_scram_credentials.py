"""DescribeUserScramCredentials (API 50): which users have a password, and how it is kept (KIP-554)."""

from headrace.protocol import schema as wire


class UserName(wire.Struct):
    name: str = wire.string()


class DescribeUserScramCredentialsRequest(wire.Message, api_key=50, versions=range(1), flexible_since=0):
    """No users, or null, for all of them."""

    users: list[UserName] | None = wire.nullable_array(UserName)


class CredentialInfo(wire.Struct):
    mechanism: int = wire.int8()
    iterations: int = wire.int32()


class DescribeUserScramCredentialsResult(wire.Struct):
    user: str = wire.string()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
    credential_infos: list[CredentialInfo] = wire.array(CredentialInfo)


class DescribeUserScramCredentialsResponse(wire.Message, api_key=50, versions=range(1), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
    results: list[DescribeUserScramCredentialsResult] = wire.array(DescribeUserScramCredentialsResult)
