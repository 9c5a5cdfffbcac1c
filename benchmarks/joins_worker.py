"""One contender in a process of its own; see `pipelines_worker`."""

import pipelines_worker

pipelines_worker.WHERE = {"headrace": ("joins_spark", "Ours"), "flink": ("joins_flink", "FlinkJoins")}

if __name__ == "__main__":
    pipelines_worker.main()
