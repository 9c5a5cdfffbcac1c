"""The parts of `MemoryFileSystem`, from the bottom up.

- `node.py`: a file and a folder, each once as it is seen and once as it is on the disk;
- `journal.py`: changes of names that are not on the disk yet, and which of them may survive without which;
- `tree.py`: paths, and the errors that Linux gives for them;
- `faults.py`: failures ordered by a test, counters, and the simulated crash;
- `disk.py`: the state that open files share (one lock, the tree, the room, the faults), and an open file.
"""
