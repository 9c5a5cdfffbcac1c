"""Templates: whole pages, their live parts one by one, and the same models as JSON."""

import dataclasses
import json
from collections.abc import Mapping
from enum import Enum

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from headrace.cep.pictures.diagram import Diagram
from headrace.cep.pictures.svg import draw_svg
from headrace.dashboard import format as shown
from headrace.dashboard.alerts import Severity, group_link, job_link, pattern_link, queue_link, topic_link
from headrace.dashboard.charts import Chart
from headrace.dashboard.page import Model, Page
from headrace.dashboard.settings import Settings
from headrace.dashboard.statuses import sign, tone
from headrace.dashboard.watch import State

_LIVE = "live_"


class Templates:
    """Renders; everything is escaped unless a template of ours says otherwise."""

    def __init__(self, settings: Settings, pages: tuple[Page, ...]) -> None:
        env = Environment(
            loader=PackageLoader("headrace.dashboard", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        env.filters |= {
            "count": shown.count, "short": shown.short, "size": shown.size, "duration": shown.duration,
            "moment": shown.moment, "points": _points, "sentence": shown.sentence, "clock": shown.clock_time,
            "brief": shown.brief, "pretty": shown.pretty, "words": shown.words, "tone": tone, "sign": sign,
            "picture": _picture,
        }  # fmt: skip
        env.globals |= {
            "cluster_name": settings.cluster_name,
            "menu": _menu(pages),
            "topic_link": topic_link,
            "group_link": group_link,
            "job_link": job_link,
            "queue_link": queue_link,
            "pattern_link": pattern_link,
        }
        env.globals["ui"] = env.get_template("macros.html").module
        self._env = env

    def part(self, template: str, model: Model) -> str:
        return _sayable(self._env.get_template(template).render(model))

    def whole(self, template: str, state: State, model: Model) -> str:
        """A whole page that is not in the menu."""
        context = {"page": None, "template": template, **_about(state), **model}
        return _sayable(self._env.get_template(template).render(context))

    def live_parts(self, page: Page, state: State, model: Model, template: str | None = None) -> dict[str, str]:
        """Each live part of a page: the page's own, and those that every page has."""
        context = {**_about(state), **model, "page": page}
        found: dict[str, str] = {}
        for name in ("base.html", template or page.template):
            found |= self._blocks(self._env.get_template(name), context)
        return found

    def _blocks(self, template: Template, context: Mapping[str, object]) -> dict[str, str]:
        return {
            name.removeprefix(_LIVE): _sayable("".join(render(template.new_context(dict(context)))))
            for name, render in template.blocks.items()
            if name.startswith(_LIVE)
        }


def _sayable(html: str) -> str:
    """Without halves of characters, which JSON may hold and no page can: they are shown as JSON writes them."""
    return html.encode(errors="backslashreplace").decode()


def _about(state: State) -> dict[str, object]:
    worst = max((alert.severity for alert in state.alerts), default=None)
    return {
        "state": state,
        "alert_count": sum(alert.severity > Severity.NOTE for alert in state.alerts),
        "dangers": [alert for alert in state.alerts if alert.severity is Severity.DANGER],
        "worst": worst.name.lower() if worst else "",
    }


def _points(chart: Chart) -> list[tuple[float, str, tuple[str, ...]]]:
    return [(moment.x, moment.time, moment.values) for moment in chart.moments]


def _picture(diagram: Diagram) -> Markup:
    return Markup(draw_svg(diagram, is_alone=False))  # noqa: S704 - it escapes what it is given


def _menu(pages: tuple[Page, ...]) -> dict[str, list[Page]]:
    sections: dict[str, list[Page]] = {}
    for page in pages:
        if page.menu:
            sections.setdefault(page.menu.section, []).append(page)
    return sections


def as_json(value: object) -> bytes:
    return json.dumps(_plain(value), ensure_ascii=False).encode(errors="backslashreplace")  # as JSON itself escapes


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.name.lower()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, Mapping):
        return {name if isinstance(name, str) else str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
