"""Spark's private parts are touched in one package, and nothing is hung on objects that are not ours."""

import ast
from collections.abc import Iterator
from pathlib import Path

import headrace

SOURCES = Path(headrace.__file__).parent
DOOR = SOURCES / "pipelines" / "spark"
# What PySpark keeps the JVM's objects under (`_jdf`, `_jvm`, `_jsparkSession` …), and other private names of its own.
PRIVATE = ("_gateway", "_active_spark_context", "_returnType", "_sc")
# Ways into the JVM by public names, and files of Spark's.
INSIDE = ("queryExecution", "java_gateway", "watermarkTracker", "resolvedCheckpointRoot", "activeStreamingQueries")


def touches(tree: ast.AST) -> Iterator[int]:
    """The lines in which an attribute of Spark's that is private, or leads into its JVM, is read or set."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            if node.attr.startswith("_j") or node.attr in (*PRIVATE, *INSIDE):
                yield node.lineno
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            if any(name.startswith("py4j") or "java_gateway" in name for name in names):
                yield node.lineno


def hung(tree: ast.AST) -> Iterator[int]:
    """The lines in which an attribute is set by a name that is computed, as on an object of another's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            yield node.lineno


def lines_of(folder: Path, looked, besides: Path | None = None) -> list[str]:
    files = [file for file in folder.rglob("*.py") if besides is None or besides not in file.parents]
    assert files
    return [f"{file.relative_to(SOURCES)}:{line}" for file in files for line in looked(ast.parse(file.read_text()))]


def test_only_the_door_touches_sparks_private_parts() -> None:
    assert lines_of(SOURCES, touches, besides=DOOR) == [], "reach into Spark in pipelines/spark/internals.py"
    inside = {line.partition(":")[0] for line in lines_of(DOOR, touches)}
    assert inside == {"pipelines/spark/internals.py", "pipelines/spark/launch.py"}


def test_nothing_is_hung_on_objects_of_others() -> None:
    assert lines_of(SOURCES / "pipelines", hung) == [], "return what others have to know"
