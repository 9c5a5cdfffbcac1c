"""The file that `headrace init` writes: a sample of every kind of section, those commented that need something more."""

from typing import Final

from headrace.stack.registry import KINDS

_HEAD: Final = """\
# A stack of Headrace, run by: headrace up
#
#   headrace up --check    says what is wrong with this file, and starts nothing
#   headrace status        how each part stands, from another terminal
#   headrace top           the same, live, with rates and lags
#
# Paths are relative to this file. ${VARIABLE} in a value is taken from the environment, and any key can be overridden
# there: HEADRACE__BROKER__PORT=9192 is port of [broker].
#
# The same stack on a real Kafka and a Spark cluster differs in two keys: bootstrap of [broker], master of [spark].
"""


def sample() -> str:
    """A file that can be run as it is."""
    return "".join([_HEAD, *(f"\n# {kind.summary}{kind.sample}" for kind in KINDS)])
