"""Alerts: everything that is wrong now, with where to look."""

from headrace.dashboard.alerts import Alert, Severity
from headrace.dashboard.desk import Desk
from headrace.dashboard.page import Asked, Menu, Model, Page


def model(alerts: tuple[Alert, ...], now_ms: int) -> Model:
    """What the page shows."""
    return {
        "rows": [
            {
                "severity": alert.severity.name.lower(),
                "subject": alert.subject,
                "sentence": alert.sentence,
                "link": alert.link,
                "since_ms": alert.since_ms,
                "ago_ms": max(now_ms - alert.since_ms, 0),
            }
            for alert in alerts
        ],
        "counts": {severity.name.lower(): sum(alert.severity is severity for alert in alerts) for severity in Severity},
    }


async def view(desk: Desk, _: Asked) -> Model:
    """What the page shows now."""
    return model(desk.state.alerts, desk.state.at_ms)


PAGE = Page("/alerts", "Alerts", "alerts.html", view, Menu("Health", "Alerts", "a", "alerts"))
