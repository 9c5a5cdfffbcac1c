"""What the database says to a capture by triggers."""

import psycopg
import pytest

from headrace.connect.errors import SourceRefused, SourceUnavailable
from headrace.connect.postgres.connection import translated


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.OperationalError("gone"), SourceUnavailable),
        (psycopg.errors.UndefinedTable("it was renamed just now"), SourceUnavailable),
        (psycopg.errors.UndefinedColumn("it was altered just now"), SourceUnavailable),
        (psycopg.errors.InsufficientPrivilege("no"), SourceRefused),
    ],
)
def test_no_error_of_the_driver_ends_the_capture(error: psycopg.Error, kind: type[Exception]) -> None:
    with pytest.raises(kind), translated("this user may not do it", "GRANT SELECT ON TABLE … TO …"):
        raise error
