"""Jobs are told how to reach their cluster, but for topics that say it themselves."""

from typing import Any

from headrace.pipelines import job, topic
from headrace.pipelines.jobs.declare import Job, connect_job

SETTINGS = {"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}


def declared() -> Job:
    @job(
        inputs={
            "here": topic("here", format="json", schema="n long"),
            "elsewhere": topic("elsewhere", bootstrap="other:9092"),
            "own": topic("own", **{"kafka.security.protocol": "PLAINTEXT"}),
        },
        outputs={"out": topic("out"), "table": lambda frame, number: None},
    )
    def both(here: Any, elsewhere: Any, own: Any) -> Any:
        return here

    return both


def test_settings_go_along_as_options_where_nothing_else_is_said() -> None:
    made = connect_job(declared(), SETTINGS)
    assert dict(made.inputs["here"].options) == {
        "kafka.security.protocol": "SSL", "kafka.ssl.ca.location": "ca.pem", "format": "json",
    }  # fmt: skip
    assert dict(made.inputs["elsewhere"].options) == {}
    assert dict(made.inputs["own"].options) == {"kafka.security.protocol": "PLAINTEXT"}
    assert dict(made.outputs["out"].options)["kafka.security.protocol"] == "SSL"  # type: ignore[union-attr]
    assert made.outputs["table"] is not None


def test_without_settings_a_job_stays_what_it_is() -> None:
    one = declared()
    assert connect_job(one, {}) is one
