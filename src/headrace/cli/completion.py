"""`headrace completion`: make a shell complete commands, options and topic names."""

import click
from click.shell_completion import get_completion_class

_PLACES = {
    "bash": 'eval "$(headrace completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(headrace completion zsh)" in ~/.zshrc, after compinit',
    "fish": "headrace completion fish > ~/.config/fish/completions/headrace.fish",
}


@click.command(
    epilog="\b\nTo keep it:\n" + "\n".join(f"  {shell:<5} {place}" for shell, place in _PLACES.items()),
)
@click.argument("shell", type=click.Choice(list(_PLACES)))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, and topic names from the broker."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(click.Group(), {}, "headrace", "_HEADRACE_COMPLETE")
    # Not `source()`: for bash that looks at the version of whichever bash is on the path, which need not be the user's.
    click.echo(script.source_template % script.source_vars())
