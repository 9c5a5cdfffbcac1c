"""Changes of names that are not on the disk yet, and which of them may survive without which.

Each operation (create, replace, remove, make or remove a folder) survives a crash as a whole or not at all, even where
a file moves between two folders, as on every journaling file system of Linux. Two operations are independent, and the
later one may survive without the earlier, unless
- they touch the same name, and with it the same file;
- the later one works in a folder that the earlier one put there, or removes a folder in which the earlier one worked;
- the later one moves a folder into another folder: then all that came before comes first, so that no folder can end
  up inside itself.
So a name that is replaced always holds the old file or the new one, and a file that moves is always somewhere.
"""

from collections.abc import Callable
from random import Random

from headrace.testing.filesystem.node import DirectoryNode, Node, choose_chance


class NameOperation:
    """One change of one or two names; `displaced` is what lost its name by it."""

    __slots__ = ("changes", "crosses", "displaced", "everything", "folders", "needs", "order", "provides")

    def __init__(
        self, changes: tuple[tuple[DirectoryNode, str, Node | None], ...], displaced: Node | None = None
    ) -> None:
        self.changes = changes
        self.displaced = displaced
        self.folders = frozenset(folder for folder, _, _ in changes)
        self.crosses = len(self.folders) > 1
        placed = [node for _, _, node in changes if node is not None]
        self.everything = self.crosses and any(isinstance(node, DirectoryNode) for node in placed)
        # Whatever happens to a file happens under the name that it got by the operation before.
        names: set[object] = {(folder, name) for folder, name, _ in changes}
        provides = names | {("within", folder) for folder in self.folders}
        if len(changes) == 1 or self.crosses:
            provides.update(("placed", node) for node in placed)
        self.provides = frozenset(provides)
        self.order = frozenset(names | ({("within", displaced)} if isinstance(displaced, DirectoryNode) else set()))
        self.needs = self.order | {("placed", folder) for folder in self.folders}

    def commit(self) -> None:
        for folder, name, node in self.changes:
            if node is None:
                folder.durable.pop(name, None)
            else:
                folder.durable[name] = node


class Journal:
    """The operations on names since the folders were last synced, oldest first."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending: list[NameOperation] = []

    def record(self, operation: NameOperation) -> None:
        self.pending.append(operation)

    def sync(self, folder: DirectoryNode) -> None:
        """Put every change in this folder on the disk, and no more of the others than has to go first.

        The folder's own name is not among them: that is its parent's. Only where a file moved into the folder has the
        folder to be there too, or the file would be nowhere.
        """
        ordered: set[object] = set()
        required: set[object] = set()
        everything = False
        chosen: list[NameOperation] = []
        left: list[NameOperation] = []
        for operation in reversed(self.pending):
            demanded = everything or not required.isdisjoint(operation.provides)
            if not (demanded or folder in operation.folders or not ordered.isdisjoint(operation.provides)):
                left.append(operation)
                continue
            chosen.append(operation)
            everything = everything or operation.everything
            if demanded or operation.crosses:
                required |= operation.needs
            else:
                ordered |= operation.order
        for operation in reversed(chosen):
            operation.commit()
        left.reverse()
        self.pending = left

    def write_back(self, rng: Random) -> None:
        """Let a random choice of the operations reach the disk."""
        chance = choose_chance(rng)
        missing: set[object] = set()
        left: list[NameOperation] = []
        for operation in self.pending:
            blocked = (operation.everything and left) or not operation.needs.isdisjoint(missing)
            if rng.random() < chance and not blocked:
                operation.commit()
            else:
                left.append(operation)
                missing |= operation.provides
        self.pending = left

    def copy(self, twin: Callable[[Node], Node], twin_folder: Callable[[DirectoryNode], DirectoryNode]) -> "Journal":
        """The same operations, on the twins of their files and folders."""
        journal = Journal()
        for operation in self.pending:
            changes = tuple(
                (twin_folder(folder), name, None if node is None else twin(node))
                for folder, name, node in operation.changes
            )
            displaced = None if operation.displaced is None else twin(operation.displaced)
            journal.record(NameOperation(changes, displaced))
        return journal
