"""Run jobs on a Ray cluster."""

ROWS = {
    "agentv.executors": {
        "ray": "agentv.extensions.ray.ray_cluster:RayExecutor",
    },
}
