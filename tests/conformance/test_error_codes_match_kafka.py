"""The table of error codes against Kafka's, which its own `Errors` class prints for Kafka's documentation."""

import re

import pytest

from headrace.protocol.errors import ErrorCode
from peers.kafka.tools import run_tool

pytestmark = pytest.mark.java

ROW = re.compile(r"<td>(?P<name>[A-Z0-9_]+)</td>\s*<td>(?P<code>-?\d+)</td>\s*<td>(?P<retriable>True|False)</td>")


def test_codes_names_and_retriability_are_kafkas(kafka_jars):
    printed = run_tool("org.apache.kafka.common.protocol.Errors").stdout
    theirs = {(int(row["code"]), row["name"], row["retriable"] == "True") for row in ROW.finditer(printed)}
    assert len(theirs) > 130, f"this is not a table of errors: {printed[:500]}"
    assert {(int(code), code.name, code.retriable) for code in ErrorCode} == theirs
