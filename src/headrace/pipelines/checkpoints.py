"""How checkpoints are written on a local disk, without starting a process for every file, and how they are read.

Hadoop's local file system sets a file's permissions by running `chmod`. With Spark's default writer that takes longer
than a small batch; the one chosen here goes by the same steps (a temporary file, then a rename) with fewer processes,
and the checksum files are left out. Why that is safe against a kill, and what a power cut may take, stands in
docs/decisions/0008.
"""

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headrace.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
FILE_WRITER: Final = "spark.sql.streaming.checkpointFileManagerClass"

LOCAL_CHECKPOINTS: Final["Mapping[str, str]"] = MappingProxyType(
    {FILE_WRITER: f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"}
)

STATE_STORE: Final["Mapping[str, str]"] = MappingProxyType(
    {
        "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
        # A batch uploads what it changed, not a snapshot of the whole store.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
)


def leave_out_checksum_files(spark: "SparkSession") -> None:
    """Write no `.crc` file beside each file on the local disk, in this JVM from now on.

    They cost a file and a process each, and a crash between a file and its checksum leaves two that do not fit.
    """
    context: Any = spark.sparkContext
    # pyspark has no public way to a class of the JVM.
    file_systems = context._jvm.org.apache.hadoop.fs.FileSystem  # noqa: SLF001
    file_systems.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)  # noqa: SLF001


def logged_batches(folder: Path) -> list[int]:
    """The batches that a log of Spark's (`offsets` or `commits`) has entries of; none if there is no such folder."""
    return [int(file.name) for file in folder.iterdir() if file.name.isdecimal()] if folder.is_dir() else []


def read_offset_log(file: Path) -> list[str]:
    """The lines of an entry: a version, one about the batch, and one for each source."""
    try:
        version, about, *sources = file.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise PipelineError(f"{file} cannot be read as an offset log of Spark's: {error}") from error
    if version != "v1":
        raise PipelineError(f"{file} is an offset log of version {version}, and only v1 is known here")
    return [version, about, *sources]
