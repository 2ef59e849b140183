"""A cluster that scales itself: an empty one grows for a sweep on fractional GPUs, and shrinks
again.

Its workers are Ray's fake nodes: real raylets on this machine, started and ended by Ray's own
autoscaler.
"""

import json

import pytest

from tests.cluster.nodes import HEAD, Nodes, namespaces, until

pytestmark = [namespaces, pytest.mark.slow]
HEAD_ID = "f" * 51 + "00000"
PROVIDER = {
    "type": "external",
    "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
    "use_node_id_as_ip": True,
    "disable_node_updaters": True,
    "disable_launch_config_check": True,
    "launch_multiple": True,
    "head_node_id": HEAD_ID,
    "gcs_address": HEAD,
}
GPU_NODE = {"CPU": 2, "GPU": 1, "object_store_memory": 150 * 2**20}
CLUSTER = {
    "cluster_name": "fake",
    "max_workers": 2,
    "idle_timeout_minutes": 0.2,
    "provider": PROVIDER,
    "auth": {},
    "head_node_type": "ray.head.default",
    "available_node_types": {
        "ray.head.default": {"resources": {"CPU": 0, "GPU": 0}, "node_config": {}, "max_workers": 0},
        "gpu-spot": {"resources": GPU_NODE, "node_config": {}, "min_workers": 0, "max_workers": 2},
    },
    "upscaling_speed": 10.0,
    "setup_commands": [], "initialization_commands": [], "file_mounts": {}, "cluster_synced_files": [],
    "file_mounts_sync_continuously": False, "rsync_exclude": [], "rsync_filter": [], "head_setup_commands": [],
    "worker_setup_commands": [], "head_start_ray_commands": [], "worker_start_ray_commands": [],
}  # fmt: skip
SWEEP = """
base: {name: scaled, data: {limit: 400, clients: 6}, model: linear, cohort: 6, rounds: 150, local: {steps: 20},
       resources: {actors: 2, cpus_per_actor: 0.2, gpus_per_actor: 0.25}}
axes: {local.lr: [0.02, 0.05, 0.1, 0.2]}
loggers: []
"""


@pytest.fixture
def nodes(tmp_path):
    (tmp_path / "ray_bootstrap_config.yaml").write_text(json.dumps(CLUSTER))
    made = Nodes(
        tmp_path,
        head=(f"--autoscaling-config={tmp_path / 'ray_bootstrap_config.yaml'}",),
        HOME=str(tmp_path),
        RAY_FAKE_CLUSTER="1",
        AUTOSCALER_UPDATE_INTERVAL_S="1",
        RAY_enable_autoscaler_v2="1",
        RAY_CLOUD_INSTANCE_ID=HEAD_ID,
        RAY_OVERRIDE_NODE_ID_FOR_TESTING=HEAD_ID,
    )
    try:
        yield made.start()
    finally:
        made.close()


def test_a_sweep_scales_an_empty_cluster(nodes, tmp_path):
    assert len(nodes.raylets()) == 1
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    too_much = nodes.fedorch(
        "sweep", tmp_path / "sweep.yaml", "--address", HEAD, "--set", "resources.gpus_per_actor=2"
    )
    assert too_much.returncode == 2
    assert "a trial needs 4 GPU, and the whole cluster has 2" in too_much.stderr
    process = nodes.background(
        "sweep", tmp_path / "sweep.yaml", "--address", HEAD, "--out", tmp_path / "out"
    )
    most = until(lambda: len(nodes.raylets()) == 3 and 3, process)
    until(lambda: "scaled " in nodes.fedorch("top", "--once", "--address", HEAD).stdout, process)
    text, _ = process.communicate(timeout=600)
    assert process.returncode == 0, text
    assert most == 3
    assert len(list(tmp_path.glob("out/trials/*/result.json"))) == 4, text
    until(lambda: len(nodes.raylets()) == 1)
