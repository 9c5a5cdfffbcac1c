"""DescribeLogDirs: the disk space that each partition takes, and how much is left."""

import os

from headrace.broker.context import Context
from headrace.broker.handler import Answer
from headrace.broker.turns import Steps
from headrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(ctx: Context, request: DescribeLogDirsRequest) -> Steps[Answer]:
    """Describe the one directory."""
    wanted = None if request.topics is None else {topic.topic: set(topic.partitions) for topic in request.topics}
    path = ctx.broker.directory.path
    disk = os.statvfs(path)
    result = DescribeLogDirsResult(
        log_dir=path, total_bytes=disk.f_blocks * disk.f_frsize, usable_bytes=disk.f_bavail * disk.f_frsize
    )
    for topic in list(ctx.broker.topics.by_name.values()):
        yield
        partitions = [
            DescribeLogDirsPartition(partition_index=index, partition_size=log.size_bytes, offset_lag=0)
            for index, log in enumerate(topic.partitions)
            if wanted is None or index in wanted.get(topic.name, ())
        ]
        if partitions:
            result.topics.append(DescribeLogDirsTopic(name=topic.name, partitions=partitions))
    return DescribeLogDirsResponse(results=[result])
