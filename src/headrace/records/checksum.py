"""CRC-32C, out of the library's compiled module alone.

The library's package looks up its own version as it is imported, and has a command line: together they would be a tenth
of what a broker loads until it takes its first record.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crc32c import crc32c
else:

    def _load() -> Any:
        package = find_spec("crc32c")
        places = package.submodule_search_locations if package is not None else None
        compiled = PathFinder.find_spec("crc32c._crc32c", places)
        if compiled is None or compiled.loader is None:  # another version of it, in another form
            from crc32c import crc32c as whole

            return whole
        module = module_from_spec(compiled)
        compiled.loader.exec_module(module)
        return module.crc32c

    crc32c = _load()

__all__ = ["crc32c"]
