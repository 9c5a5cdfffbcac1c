from pathlib import Path

import pytest

from headrace.pipelines import job, topic
from headrace.pipelines.jobs.declare import BadJob, TopicOutput
from headrace.pipelines.jobs.load import BadFile, load, load_files

GOOD = """
from headrace.pipelines import job, topic

@job(inputs={"orders": topic("orders", format="json", schema="n long")}, outputs=topic("large"), trigger="1 second")
def large_orders(orders):
    return orders

@job(name="other", inputs={"a": topic("a"), "b": topic("b")}, outputs={"x": topic("x"), "y": topic("y")})
def second(a, b):
    return {"x": a, "y": b}
"""


def file_of(folder: Path, text: str) -> Path:
    file = folder / "shop.py"
    file.write_text(text)
    return file


def test_a_file_of_jobs(tmp_path: Path) -> None:
    first, second = load(file_of(tmp_path, GOOD))
    assert (first.name, first.trigger, first.line) == ("large-orders", "1 second", 4)
    assert first.inputs["orders"].options == {"format": "json"}
    assert first.outputs == {"out": TopicOutput("large")}
    assert list(second.outputs) == ["x", "y"]
    assert first("anything") == "anything"  # the function is still one
    assert [found.name for found in load(tmp_path / "shop.py", ["other"])] == ["other"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "declares no job"),
        ("def broken(:\n", "shop.py:1: invalid syntax"),
        ("import nothing_such\n", "shop.py:1: ModuleNotFoundError"),
        ("\n\nprint(1 / 0)", "shop.py:3: ZeroDivisionError: division by zero"),
        (GOOD.replace('"other"', '"large-orders"'), "declares two jobs named 'large-orders'"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadFile) as caught:
        load(file_of(tmp_path, text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_or_job_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="is not a file"):
        load(tmp_path / "nothing.py")
    with pytest.raises(BadFile, match="has no job 'third': it has large-orders, other"):
        load(file_of(tmp_path, GOOD), ["third"])


def test_several_files_run_as_one_if_they_can_be_told_apart(tmp_path: Path) -> None:
    first, second = file_of(tmp_path, GOOD), tmp_path / "views.py"
    second.write_text(GOOD.replace('"other"', '"third"').replace("def large_orders", "def small_orders"))
    names = [found.name for found in load_files([first, second])]
    assert names == ["large-orders", "other", "small-orders", "third"]
    assert [found.name for found in load_files([first, second], ["third"])] == ["third"]
    second.write_text(GOOD)
    with pytest.raises(BadFile, match="declares two jobs named 'large-orders'"):
        load_files([first, second])
    (tmp_path / "inner").mkdir()
    with pytest.raises(BadFile, match="two files are called shop: give one another name"):
        load_files([first, file_of(tmp_path / "inner", GOOD)])


def test_what_a_declaration_is_refused_for() -> None:
    with pytest.raises(BadJob, match="takes rows and inputs names orders"):
        job(inputs={"orders": topic("o")}, outputs=topic("x"), name="n")(lambda rows: rows)
    with pytest.raises(BadJob, match="has no inputs"):
        job(inputs={}, outputs=topic("x"), name="n")(lambda: None)
    with pytest.raises(BadJob, match="trigger is 'often'"):
        job(inputs={"o": topic("o")}, outputs=topic("x"), trigger="often", name="n")(lambda o: o)
    with pytest.raises(BadJob, match="output 'out' is int"):
        job(inputs={"o": topic("o")}, outputs=5, name="n")(lambda o: o)  # type: ignore[arg-type]
    with pytest.raises(BadJob, match="input 'o' is str: write topic"):
        job(inputs={"o": "orders"}, outputs=topic("x"), name="n")(lambda o: o)  # type: ignore[dict-item]
    with pytest.raises(BadJob, match="a name is letters"):
        job(inputs={"o": topic("o")}, outputs=topic("x"), name="a b")(lambda o: o)
