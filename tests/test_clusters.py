"""A study on a Ray cluster: Ray's own cluster of several nodes, all on this machine and its loopback address."""

import json
import re
import threading
import time

import pytest
from test_study import nothing, outcome

from cissl import Run, leases
from cissl.clusters import Ray
from cissl.study import InHere, execute_study

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'cissl[ray]'")

PATIENCE = 120.0  # seconds, for what takes a few
FAST_DEATH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 200, "health_check_failure_threshold": 5}
LONG = [Run(dataset="digits", method=name, steps=600, seed=0) for name in ("mean-teacher+scl", "pi")]
SHORT = [Run(dataset="two-moons", method=name, steps=30, seed=seed) for name in ("pi", "supervised") for seed in (0, 1)]


@pytest.fixture(scope="module")
def cluster():
    """A head without processors, and two nodes of one each. Nothing of it is left afterwards."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # makes Ray keep to the loopback address,
        patch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)  # which it read when it was imported
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": FAST_DEATH}
        started = Cluster(initialize_head=True, head_node_args=head | ON_LOOPBACK)
        try:
            for _ in range(2):
                started.add_node(num_cpus=1, **ON_LOOPBACK)
            yield started
        finally:
            started.shutdown()


ON_LOOPBACK = {"node_ip_address": "127.0.0.1"}


def wait_for(what):
    deadline = time.monotonic() + PATIENCE
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_study_on_a_cluster_whose_node_is_killed_ends_with_the_same_results(cluster, tmp_path):
    """Both nodes train when one is killed; its run goes on elsewhere, from its last checkpoint."""
    runs, folder = [*LONG, *SHORT], tmp_path / "cluster"
    killed = []

    def kill_a_node():
        def both_have_checkpoints():
            held = [(run, leases.seen(folder / run.name)) for run in LONG]
            return held if all(lease and list((folder / run.name).glob("checkpoint-*")) for run, lease in held) else []

        held = wait_for(both_have_checkpoints)
        node = cluster.worker_nodes.copy().pop()
        cluster.remove_node(node, allow_graceful=False)
        pids = {run: lease.pid for run, lease in held}
        killed.extend(wait_for(lambda: [run for run in LONG if not leases._runs(pids[run])]))

    killer = threading.Thread(target=kill_a_node)
    killer.start()
    told = []
    failures = execute_study(runs, folder, Ray(folder, address=cluster.address), lambda *what: told.append(what))
    killer.join()
    assert failures == []
    assert (sum(steps for steps, _ in told), sum(n for _, n in told)) == (sum(run.steps for run in runs), len(runs))
    (run,) = killed
    assert "Going on after step" in (folder / run.name / "output.log").read_text()
    assert not list(folder.rglob(leases.NAME))

    assert execute_study(runs, tmp_path / "here", InHere(tmp_path / "here"), nothing) == []
    assert outcome(folder, runs) == outcome(tmp_path / "here", runs)


def test_what_fails_on_a_cluster_is_told_with_its_log(cluster, tmp_path):
    folder, run = tmp_path / "study", Run(dataset="two-moons", method="pi", steps=3)
    (folder / run.name / "weights.npz").mkdir(parents=True)
    ((failed, reason),) = execute_study([run], folder, Ray(folder, address=cluster.address), nothing)
    assert failed == [run]
    assert "Is a directory" in reason
    assert json.loads((folder / run.name / "failure.json").read_bytes())["tries"] == 2


def test_runs_that_fit_nowhere_are_told(cluster, tmp_path, capfd):
    workers = Ray(tmp_path, address=cluster.address, gpus_per_run=0.25)
    workers.stop()
    assert "A run needs 0.25 GPU, and no machine of the cluster has more than 0 now" in capfd.readouterr().err


def test_an_address_where_nobody_answers(cissl, tmp_path):
    code, out, err = cissl("run", "toy", "--on", "ray", "--address", "127.0.0.1:9", "--steps", 1)
    assert (code, out) == (2, "")
    assert re.match(r"error: nobody answers at [\d.]+:9 ", err)
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--address", "127.0.0.1:9"), "give --on ray with them"),
        (("--gpus-per-run", "0.5"), "give --on ray with them"),
        (("--on", "ray", "--jobs", "2"), "--jobs is for this machine"),
    ],
)
def test_options_of_another_place(cissl, options, said):
    code, _, err = cissl("run", "toy", *options)
    assert code == 2
    assert said in err
