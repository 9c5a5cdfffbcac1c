"""`headrace init`: write a `headrace.toml` to begin with."""

from pathlib import Path

import click

from headrace import extras
from headrace.connect.sections import DEFAULT_FILE
from headrace.stack.errors import StackError
from headrace.stack.sample import sample


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), default=DEFAULT_FILE)
def init(file: Path) -> None:
    """Write FILE, which describes a stack: a broker, a topic, a dashboard, and comments on all else that there is.

    FILE is headrace.toml unless another is named. It runs as it is: headrace up. A file that is there already is left
    alone.
    """
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(sample())
    except FileExistsError:
        raise StackError(f"{file} is there already, and is left as it is: name another file, or remove it") from None
    option = "" if str(file) == DEFAULT_FILE else f" --config {file}"
    click.echo(f"wrote {file}: look at it, then start it with headrace up{option}")
    if missing := extras.look_for("starlette", "its section [dashboard]"):
        click.echo(f"{missing}, or remove the section")
