"""One contender in a process of its own; see `pipelines_worker`."""

import pipelines_worker

pipelines_worker.WHERE = {
    "headrace": ("windows_spark", "Ours"),
    "native": ("windows_spark", "Native"),
    "spark-2": ("windows_spark", "Plain"),
    "flink": ("windows_flink", "FlinkWindows"),
}

if __name__ == "__main__":
    pipelines_worker.main()
