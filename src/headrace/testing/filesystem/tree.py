"""Paths and names: what POSIX lets one do with them, and the errors that Linux gives.

Every change is seen at once and goes to the journal, which knows what of it a crash leaves.
"""

import os
from errno import EBUSY, EEXIST, EINVAL, EISDIR, ENAMETOOLONG, ENOENT, ENOTDIR, ENOTEMPTY
from functools import lru_cache
from random import Random

from headrace.testing.filesystem.faults import Counts
from headrace.testing.filesystem.journal import Journal, NameOperation
from headrace.testing.filesystem.node import DirectoryNode, FileNode, Node

NAME_MAX_BYTES = 255


def os_error(code: int, path: str, other: str | None = None) -> OSError:
    """The error as the operating system words it, in the subclass that belongs to the code."""
    if other is None:
        return OSError(code, os.strerror(code), path)
    return OSError(code, os.strerror(code), path, None, other)


@lru_cache(maxsize=4096)
def split(path: str) -> tuple[str, ...]:
    """The names in a path; a leading slash means nothing, since there is no current folder but the root."""
    if not path:
        raise os_error(ENOENT, path)
    return tuple(name for name in path.split("/") if name and name != ".")


class Tree:
    __slots__ = ("counts", "journal", "root")

    def __init__(self) -> None:
        self.root = DirectoryNode()
        self.journal = Journal()
        self.counts: dict[str, Counts] = {}

    def find(self, path: str) -> Node:
        node = self._walk(split(path), path)[-1]
        if path.endswith("/") and not isinstance(node, DirectoryNode):
            raise os_error(ENOTDIR, path)
        return node

    def find_folder(self, path: str) -> DirectoryNode:
        node = self.find(path)
        if not isinstance(node, DirectoryNode):
            raise os_error(ENOTDIR, path)
        return node

    def find_file(self, path: str) -> FileNode:
        node = self.find(path)
        if not isinstance(node, FileNode):
            raise os_error(EISDIR, path)
        return node

    def locate(self, path: str, *, root_error: int = EBUSY) -> tuple[DirectoryNode, str, Node | None]:
        """The folder in which the last name of the path is or would be, that name, and what is there."""
        names = split(path)
        if not names or names[-1] == "..":
            raise os_error(root_error, path)
        parent = self._walk(names[:-1], path)[-1]
        if not isinstance(parent, DirectoryNode):
            raise os_error(ENOTDIR, path)
        if len(os.fsencode(names[-1])) > NAME_MAX_BYTES:
            raise os_error(ENAMETOOLONG, path)
        return parent, names[-1], parent.names.get(names[-1])

    def add(self, parent: DirectoryNode, name: str, node: Node, now_ms: int) -> None:
        node.modified_ms = parent.modified_ms = now_ms
        parent.names[name] = node
        self._set_path(node, parent, name)
        self.journal.record(NameOperation(((parent, name, node),)))

    def replace(self, source: str, target: str, now_ms: int) -> Node | None:
        """Rename; what the target was before, if it lost its name."""
        old_parent, old_name, node = self.locate(source)
        new_parent, new_name, displaced = self.locate(target)
        if node is None:
            raise os_error(ENOENT, source, target)
        is_folder = isinstance(node, DirectoryNode)
        if not is_folder and (source.endswith("/") or target.endswith("/")):
            raise os_error(ENOTDIR, source, target)
        if old_parent is not new_parent:
            # In Linux's order: a folder into itself, then anything onto a folder that it is in.
            if node in self._walk(split(target)[:-1], target):
                raise os_error(EINVAL, source, target)
            if displaced is not None and displaced in self._walk(split(source)[:-1], source):
                raise os_error(ENOTEMPTY, source, target)
        if displaced is node:
            return None
        if isinstance(displaced, DirectoryNode):
            if not is_folder:
                raise os_error(EISDIR, source, target)
            if displaced.names:
                raise os_error(ENOTEMPTY, source, target)
        elif displaced is not None and is_folder:
            raise os_error(ENOTDIR, source, target)
        del old_parent.names[old_name]
        new_parent.names[new_name] = node
        old_parent.modified_ms = new_parent.modified_ms = now_ms
        self._set_path(node, new_parent, new_name)
        changes = ((old_parent, old_name, None), (new_parent, new_name, node))
        self.journal.record(NameOperation(changes, displaced))
        return displaced

    def remove(self, path: str, now_ms: int) -> FileNode:
        """Take a file's name away; the file."""
        parent, name, node = self.locate(path, root_error=EISDIR)
        if node is None:
            raise os_error(ENOENT, path)
        if isinstance(node, DirectoryNode):
            raise os_error(EISDIR, path)
        if path.endswith("/"):
            raise os_error(ENOTDIR, path)
        self._take_name(parent, name, node, now_ms)
        return node

    def remove_folder(self, path: str, now_ms: int) -> None:
        parent, name, node = self.locate(path)
        if node is None:
            raise os_error(ENOENT, path)
        if not isinstance(node, DirectoryNode):
            raise os_error(ENOTDIR, path)
        if node.names:
            raise os_error(ENOTEMPTY, path)
        self._take_name(parent, name, node, now_ms)

    def missing_folders(self, path: str) -> list[str]:
        names = split(path)
        node: Node = self.root
        for depth, name in enumerate(names):
            if not isinstance(node, DirectoryNode):
                raise os_error(ENOTDIR, path)
            if name == "..":
                raise os_error(EINVAL, path)
            if name not in node.names:
                return ["/".join(names[: end + 1]) for end in range(depth, len(names))]
            node = node.names[name]
        if not isinstance(node, DirectoryNode):
            raise os_error(EEXIST, path)
        return []

    def files(self) -> list[FileNode]:
        return [node for node in self._visible() if isinstance(node, FileNode)]

    def write_back(self, rng: Random) -> None:
        """Let a random part of all that is not synced reach the disk."""
        self.journal.write_back(rng)
        for node in self._reachable():
            if isinstance(node, FileNode):
                node.write_back(rng)

    def forget_volatile(self) -> None:
        for node in self._reachable():
            if isinstance(node, DirectoryNode):
                node.names = dict(node.durable)
            else:
                node.forget_volatile()
        self.journal.pending.clear()
        self._set_paths_below(self.root)

    def copy(self) -> "Tree":
        """The same tree of other nodes, with the same things not on the disk, and counters at zero."""
        files: dict[FileNode, FileNode] = {}
        folders: dict[DirectoryNode, DirectoryNode] = {}
        for node in self._reachable():
            if isinstance(node, FileNode):
                files[node] = node.copy()
            else:
                folders[node] = DirectoryNode()
                folders[node].modified_ms = node.modified_ms

        def twin(node: Node) -> Node:
            return files[node] if isinstance(node, FileNode) else folders[node]

        for folder, other in folders.items():
            other.names = {name: twin(node) for name, node in folder.names.items()}
            other.durable = {name: twin(node) for name, node in folder.durable.items()}
        tree = Tree()
        tree.root = folders[self.root]
        tree.journal = self.journal.copy(twin, folders.__getitem__)
        tree._set_paths_below(tree.root)
        return tree

    def count(self, path: str) -> Counts:
        counts = self.counts.get(path)
        if counts is None:
            counts = self.counts[path] = Counts()
        return counts

    def _walk(self, names: tuple[str, ...], path: str) -> list[Node]:
        node: Node = self.root
        way = [node]
        for name in names:
            if not isinstance(node, DirectoryNode):
                raise os_error(ENOTDIR, path)
            if name == "..":
                if len(way) > 1:
                    way.pop()
                node = way[-1]
                continue
            child = node.names.get(name)
            if child is None:
                raise os_error(ENOENT, path)
            node = child
            way.append(node)
        return way

    def _take_name(self, parent: DirectoryNode, name: str, node: Node, now_ms: int) -> None:
        del parent.names[name]
        parent.modified_ms = now_ms
        self.journal.record(NameOperation(((parent, name, None),), node))

    def _set_path(self, node: Node, parent: DirectoryNode, name: str) -> None:
        node.path = f"{parent.path}/{name}" if parent.path else name
        if isinstance(node, FileNode):
            node.counts = self.count(node.path)
        else:
            self._set_paths_below(node)

    def _set_paths_below(self, folder: DirectoryNode) -> None:
        for name, node in folder.names.items():
            self._set_path(node, folder, name)

    def _visible(self) -> list[Node]:
        """Everything that has a name now, each folder before what is in it."""
        found: list[Node] = [self.root]
        for node in found:
            if isinstance(node, DirectoryNode):
                found.extend(node.names.values())
        return found

    def _reachable(self) -> list[Node]:
        """Everything that has a name now, or on the disk, or in the journal, always in the same order."""
        found: dict[Node, None] = {self.root: None}
        ahead: list[Node] = [self.root]
        for operation in self.journal.pending:
            for folder, _, node in operation.changes:
                ahead.append(folder)
                if node is not None:
                    ahead.append(node)
            if operation.displaced is not None:
                ahead.append(operation.displaced)
        while ahead:
            node = ahead.pop()
            found[node] = None
            if isinstance(node, DirectoryNode):
                ahead.extend(child for child in node.names.values() if child not in found)
                ahead.extend(child for child in node.durable.values() if child not in found)
        return list(found)
