"""The pages, in the order of the menu. A new capability adds its page, its template, and a line here."""

from headrace.dashboard.page import Page
from headrace.dashboard.pages.events import EVENTS, STORE, STREAM
from headrace.dashboard.pages.gateways import GATEWAYS_PAGE, SERIES
from headrace.dashboard.pages.groups import GROUP, GROUPS
from headrace.dashboard.pages.overview import ALERTS, MAP, OVERVIEW
from headrace.dashboard.pages.parts import CAPTURES, DERIVED, VIEWS
from headrace.dashboard.pages.patterns import PATTERN, PATTERNS
from headrace.dashboard.pages.pipelines import PIPELINE, PIPELINES
from headrace.dashboard.pages.queues import QUEUE, QUEUES
from headrace.dashboard.pages.records import RECORDS
from headrace.dashboard.pages.searches import SEARCHES_PAGE
from headrace.dashboard.pages.topics import SCHEMA, TOPIC, TOPICS

PAGES: tuple[Page, ...] = (
    OVERVIEW, TOPICS, RECORDS, SCHEMA, TOPIC, GROUPS, GROUP, QUEUES, QUEUE, EVENTS, STREAM, STORE, MAP, PIPELINES,
    PIPELINE, PATTERNS, PATTERN, SEARCHES_PAGE, GATEWAYS_PAGE, SERIES, CAPTURES, DERIVED, VIEWS, ALERTS,
)  # fmt: skip
