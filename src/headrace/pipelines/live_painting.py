"""Where a live view is shown: in a notebook's cell, in a terminal, or line by line in a pipe."""

import sys
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live as RichLive

from headrace.pipelines.live_html import as_html
from headrace.pipelines.live_text import as_text, one_line
from headrace.pipelines.live_view import View


class Painter(Protocol):
    """Shows a view, and again when it has changed."""

    def paint(self, view: View) -> None:
        """Show it."""

    def close(self, view: View) -> None:
        """Show it for the last time; it stays as it is."""


class Cell:
    """A cell of a notebook; `display` is IPython's, and what it answers can be shown anew in its place."""

    def __init__(self, display: Any, html: Any) -> None:
        self._display = display
        self._html = html
        self._handle: Any = None

    def paint(self, view: View) -> None:
        """Show it in the same place."""
        shown = self._html(as_html(view))
        if self._handle is None:
            self._handle = self._display(shown, display_id=True)
        else:
            self._handle.update(shown)

    def close(self, view: View) -> None:
        """The last state stays in the notebook."""
        self.paint(view)


class Terminal:
    """A table that stays in place as long as it changes."""

    def __init__(self, console: Console) -> None:
        self._live = RichLive(console=console, auto_refresh=False, transient=False)
        self._is_open = False

    def paint(self, view: View) -> None:
        """Show it in the same place."""
        if not self._is_open:
            self._live.start()
            self._is_open = True
        self._live.update(as_text(view), refresh=True)

    def close(self, view: View) -> None:
        """Give the terminal back, the cursor below the table."""
        self.paint(view)
        self._live.stop()
        self._is_open = False


class Lines:
    """A line a batch, and the table at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = -1

    def paint(self, view: View) -> None:
        """Say what is new."""
        if view.batch > self._said:
            self._said = view.batch
            self._console.print(one_line(view), soft_wrap=True, markup=False)

    def close(self, view: View) -> None:
        """Show all of it once."""
        self._console.print(as_text(view))


def painter() -> Painter:
    """The one that fits where this runs; IPython is only asked if it runs already."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and getattr(shell, "kernel", None) is not None:  # a notebook, not a prompt in a terminal
        from IPython.display import HTML, display  # type: ignore[import-not-found, unused-ignore]

        return Cell(display, HTML)
    console = Console(highlight=False)
    return Terminal(console) if console.is_terminal else Lines(console)
