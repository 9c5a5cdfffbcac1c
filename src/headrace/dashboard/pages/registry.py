"""The list of pages, in the order of the menu. A new capability adds its file, its template, and a line here."""

from headrace.dashboard.page import Page
from headrace.dashboard.pages import (
    alerts,
    changes,
    derived,
    group,
    groups,
    overview,
    pipeline,
    pipelines,
    records,
    schema,
    stack_map,
    topic,
    topics,
    views,
)

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    topics.PAGE,
    records.PAGE,
    schema.PAGE,
    topic.PAGE,
    groups.PAGE,
    group.PAGE,
    stack_map.PAGE,
    pipelines.PAGE,
    pipeline.PAGE,
    changes.PAGE,
    derived.PAGE,
    views.PAGE,
    alerts.PAGE,
)
