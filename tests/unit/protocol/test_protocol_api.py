"""The list of APIs is whole, and request and response belong together."""

from pathlib import Path

import pytest

from headrace.protocol import messages
from headrace.protocol.api import APIS, ApiKey


def test_every_key_and_every_file_is_in_the_list():
    files = {path.stem for path in Path(messages.__file__).parent.glob("*.py")} - {"__init__", "shared"}
    assert set(APIS) == set(ApiKey)
    assert {key.name.lower() for key in ApiKey} == files


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.name)
def test_request_and_response_agree(api):
    asked, answered = api.request.__schema__, api.response.__schema__
    assert asked.api_key == answered.api_key == api.key
    assert asked.versions == answered.versions == api.versions
    assert asked.flexible_since == answered.flexible_since == api.flexible_since
    assert len(api.versions) > 0


def test_fetch_is_as_kafka_has_it():
    fetch = APIS[ApiKey.FETCH]
    assert fetch.versions == range(4, 19)
    assert fetch.flexible_since == 12
    assert APIS[ApiKey.OFFSET_DELETE].flexible_since is None
    assert APIS.get(4242) is None
