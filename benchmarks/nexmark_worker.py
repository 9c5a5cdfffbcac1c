"""One contender in a process of its own; see `pipelines_worker`."""

import pipelines_worker

pipelines_worker.WHERE = {
    "headrace": ("nexmark_spark", "Ours"),
    "flink": ("nexmark_flink", "FlinkNexmark"),
    "spark-2": ("nexmark_spark", "Plain"),
}

if __name__ == "__main__":
    pipelines_worker.main()
