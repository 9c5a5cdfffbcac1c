"""What a page is: one value, from which its address, its place in the menu, its JSON and its live parts are derived.

A page is a file in `pages/` with a `PAGE` (or several), a template of the same name, and a line in
`pages/registry.py`. Its `view` makes a model from what the desk knows; the template shows it. Every block of the
template whose name begins with `live_` is kept up to date in the browser.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headrace.dashboard.desk import Desk

Model = Mapping[str, Any]
Params = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Asked:
    """Which page is wanted: what its path holds, and what stands behind the question mark."""

    path: Params = field(default_factory=dict)
    query: Params = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Menu:
    """A page's place in the menu."""

    section: str
    label: str
    shortcut: str  # pressed after g
    icon: str  # a symbol of icons.svg


@dataclass(frozen=True, slots=True)
class Stream:
    """Events that a page offers besides its live parts."""

    path: str
    run: Callable[[Desk, Request, "Show"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Action:
    """A form that changes something; run only where writing is allowed, and with the form's proof checked."""

    path: str
    run: Callable[[Desk, Params, Params, "Show"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Page:
    """One page."""

    path: str
    title: str
    template: str
    view: Callable[[Desk, Asked], Awaitable[Model]]
    menu: Menu | None = None
    parent: str = ""  # the path of the page in whose place of the menu this one stands
    needs_cluster: bool = True  # without having seen it once there is nothing to show
    actions: tuple[Action, ...] = ()
    streams: tuple[Stream, ...] = ()


@dataclass(frozen=True, slots=True)
class Show:
    """How a page's own streams and actions render: parts of templates, and whole pages."""

    part: Callable[[str, Model], str]
    whole: Callable[[str, Model], Response]
