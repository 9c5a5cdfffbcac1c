"""One contender in a process of its own; see `pipelines_worker`."""

import pipelines_worker

pipelines_worker.WHERE = {
    "headrace": ("cep_ours", "Ours"),
    "matcher": ("cep_ours", "Plain"),
    "flink-cep": ("cep_java", "FlinkCep"),
    "esper": ("cep_java", "Esper"),
    "esper-one-core": ("cep_java", "EsperOnOneCore"),
}

if __name__ == "__main__":
    pipelines_worker.main()
