"""What comes in an archive is unpacked, and nothing outside of its folder is touched."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from peers.archives import unpack


def archive(path: Path, *more: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:xz") as made:
        program = tarfile.TarInfo("bin/server")
        program.size, program.mode = 4, 0o755
        made.addfile(program, io.BytesIO(b"code"))
        for member in more:
            made.addfile(member)
    return path


def link(name: str, target: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = tarfile.SYMTYPE, target
    return made


@pytest.mark.parametrize("is_in_a_jar", [False, True])
def test_an_archive_by_itself_or_in_a_jar(tmp_path: Path, is_in_a_jar: bool) -> None:
    lib = tmp_path / "lib"
    lib.mkdir()
    made = archive(lib / "server-1.0.txz", link("lib/alias", "../bin/server"), link("lib/builder", "/home/builder/x"))
    if is_in_a_jar:
        with zipfile.ZipFile(lib / "server.jar", "w") as jar:
            jar.write(made, made.name)
        made.unlink()
    unpack(lib, "server-*.txz", tmp_path / "home")
    assert (tmp_path / "home/lib/alias").read_bytes() == b"code"
    assert (tmp_path / "home/bin/server").stat().st_mode & 0o111
    assert not (tmp_path / "home/lib/builder").is_symlink()


def test_nothing_leaves_the_folder(tmp_path: Path) -> None:
    archive(tmp_path / "a.txz", tarfile.TarInfo("../outside"))
    with pytest.raises(tarfile.OutsideDestinationError):
        unpack(tmp_path, "*.txz", tmp_path / "home")
    with pytest.raises(LookupError, match="no archive"):
        unpack(tmp_path, "*.zip", tmp_path / "home")
