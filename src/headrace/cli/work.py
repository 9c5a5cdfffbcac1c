"""`headrace work`: run a worker of a queue, as a section `[queues.NAME]` describes it."""

import sys
from pathlib import Path

import click

from headrace.cli.output import json_option
from headrace.cli.parameters import as_text, bootstrap_option, config_option
from headrace.cli.status_view import View, worker_table
from headrace.client.address import Address
from headrace.queues.section import from_section, run_worker
from headrace.stack.document import read_section
from headrace.stack.kinds.queues import KIND


@click.command()
@click.argument("name")
@config_option("The file with a section [queues.NAME].")
@bootstrap_option
@json_option
def work(name: str, config: Path, bootstrap: tuple[Address, ...], as_json: bool) -> None:
    """Run the function of [queues.NAME] for each message of its queue, until interrupted.

    What it does when told to end, it finishes; what it has fetched besides goes back to the queue at once. A function
    that fails has its message again, later each time, until the queue's limit makes it a dead letter.
    """
    section = read_section(config, KIND, name)
    folder = str(config.absolute().parent)
    if Path(folder).name != "fd":  # handed over in memory by headrace up, which starts us beside the file
        sys.path.insert(0, folder)
    settings = from_section(name, section)
    with View(worker_table, as_json=as_json) as view:
        run_worker(settings, as_text(bootstrap), view.show)
