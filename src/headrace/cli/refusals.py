"""What the operating system refuses, as a sentence that says what, where, and how to mend it. Pure."""

import errno
from typing import Final

_REMEDIES: Final = {
    errno.ENOSPC: "free some space, or name a folder on another disk",
    errno.EDQUOT: "free some space, or name a folder on another disk",
    errno.EACCES: "name a place that you may use, or change who may",
    errno.EPERM: "name a place that you may use, or change who may",
    errno.EROFS: "name a folder on a disk that can be written",
    errno.ENOENT: "check the name, and whether its folder is there",
    errno.ENOTDIR: "a part of the path is a file: name another",
    errno.EISDIR: "it is a folder: name a file",
    errno.EMFILE: "let more files be open (ulimit -n), or use fewer partitions",
    errno.EADDRINUSE: "choose another port, or end the program that has it",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def sentence_of(error: OSError) -> str:
    """One line for a person."""
    where = f"{error.filename}: " if error.filename else ""
    what = error.strerror or str(error) or type(error).__name__
    remedy = _REMEDIES.get(error.errno or 0, "")
    return f"{where}{what[0].lower()}{what[1:]}" + (f": {remedy}" if remedy else "")
