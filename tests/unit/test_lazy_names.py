"""Names that a package gives out when they are first asked for."""

import importlib
import pkgutil
import re
from pathlib import Path

import headrace

SOURCE = Path(headrace.__file__).parent
LAZY = sorted(
    ".".join(("headrace", *file.parent.relative_to(SOURCE).parts))
    for file in SOURCE.rglob("__init__.py")
    if re.search(r"= export_lazily\(__name__", file.read_text(encoding="utf-8"))
)


def test_no_module_has_the_name_of_something_that_is_given_out_lazily() -> None:
    """Else whoever imports the module puts it in the place of what users import by this name."""
    assert LAZY
    for package in map(importlib.import_module, LAZY):
        modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
        assert modules & set(package.__all__) == set()
