"""`headrace gateway`: run what takes records in from programs that speak no Kafka, and look at it."""

from functools import partial
from pathlib import Path

import click

from headrace.cli.cdc import show_until_stopped
from headrace.cli.output import json_option
from headrace.cli.parameters import bootstrap_option, config_option
from headrace.cli.status_view import gateway_table
from headrace.client.address import Address
from headrace.gateways.section import SECTION, from_section, run_gateway
from headrace.section_keys import check_keys, with_defaults
from headrace.stack.document import read_sections
from headrace.stack.errors import InvalidStack
from headrace.stack.kinds.gateways import KIND


@click.group()
def gateway() -> None:
    """Take records in from programs that speak no Kafka: log files that are followed."""


@gateway.command()
@click.argument("name")
@config_option("The file with a section [gateways.NAME].")
@bootstrap_option
@json_option
def start(name: str, config: Path, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Run [gateways.NAME] until interrupted.

    A broker that is away is waited for, and so is a file that is not there yet. Each line is written once, whatever
    ends this command and whenever.
    """
    (section,) = read_sections(config, SECTION, (name,)).values()
    if wrong := check_keys(KIND.keys, section, f"{SECTION}.{name}"):
        raise InvalidStack([sentence for _, sentence in wrong])
    settings = from_section(name, with_defaults(KIND.keys, section))
    show_until_stopped(gateway_table, partial(run_gateway, settings, bootstrap), as_json=as_json)
