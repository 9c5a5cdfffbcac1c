"""Beginning anew: the checkpoint goes, and the next run starts where the user says."""

import json
from dataclasses import replace
from pathlib import Path

from headrace.pipelines.jobs.declare import Job, cluster_of
from headrace.pipelines.jobs.place import Place, described, folder_of, forget, locked, read_record, write_record
from headrace.pipelines.source.options import Place as LogPlace
from headrace.pipelines.source.places import find
from headrace.pipelines.source.planning import to_json


def reset(job: Job, state: Path, bootstrap: str, to: LogPlace) -> dict[str, dict[str, int]]:
    """Forget a job's checkpoint and state; the offsets at which its next run begins."""
    folder = folder_of(job, state)
    with locked(folder):
        record = read_record(folder)
        place = Place(folder, record.version if record else 1)
        starts: dict[str, dict[str, int]] = {}
        for given in job.inputs.values():
            cluster = cluster_of(given, bootstrap)
            starts |= to_json(find(cluster, cluster.partitions(given.name), to, committed=True))
        forget(place)
        place.root.mkdir(parents=True)
        place.starts_file.write_text(json.dumps(starts))
        write_record(folder, replace(described(job), version=place.version))
        return starts
