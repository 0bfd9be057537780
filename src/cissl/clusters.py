"""Work on a study on a Ray cluster whose machines share the study's folder: `pip install 'cissl[ray]'`."""

import contextlib
import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cissl import leases
from cissl.execution import Machine
from cissl.processes import output_to
from cissl.study import Ended, Group, beside, work

ANSWERS_WITHIN = 5.0  # seconds
TRIES = 5  # of a group whose machine or process went away: that is seldom the run's own fault


class Ray:
    """Ray says where and when each group is worked on; a run whose machine goes away goes on elsewhere, from its last
    checkpoint. Without an address, Ray is started on this machine, for this study alone."""

    def __init__(
        self,
        folder: Path,
        machine: Machine | None = None,
        address: str | None = None,
        cpus_per_run: float = 1.0,
        gpus_per_run: float = 0.0,
    ) -> None:
        if importlib.util.find_spec("ray") is None:
            raise ValueError("--on ray needs Ray: pip install 'cissl[ray]'")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's coming default
        import ray

        self.ray, self.folder = ray, folder.absolute()
        self.machine = machine or Machine()
        if self.machine.data_dir is not None:
            self.machine = replace(self.machine, data_dir=self.machine.data_dir.absolute())
        here = {"_node_ip_address": "127.0.0.1", "include_dashboard": False}
        started: dict[str, Any] = {"address": address} if address else here
        if address:
            _check_answers(address)
        try:
            ray.init(**started, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = f"the Ray cluster at {address}" if address else "Ray on this machine"
            raise ValueError(f"cannot reach {where}: {error}") from error
        self._check_room({"CPU": cpus_per_run, "GPU": gpus_per_run}, may_grow=bool(address))
        threads = max(1, int(cpus_per_run))
        options = {"num_cpus": cpus_per_run, "num_gpus": gpus_per_run, "max_retries": 0}
        environment = {"env_vars": {"OMP_NUM_THREADS": str(threads)}}
        task: Any = ray.remote(_task)
        task = task.options(**options, runtime_env=environment)
        self.submit: Callable[[Group], Any] = lambda group: task.remote(group, str(self.folder), self.machine, threads)
        self.groups: dict[Any, Group] = {}
        self.steps: dict[Any, int] = {}

    def _check_room(self, needed: dict[str, float], may_grow: bool) -> None:
        """A run that fits on no machine would wait for ever."""
        machines = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        for what, much in needed.items():
            most = max((machine.get(what, 0.0) for machine in machines), default=0.0)
            if much > most and may_grow:
                print(
                    f"A run needs {much:g} {what}, and no machine of the cluster has more than {most:g} now: the runs "
                    "wait until one joins.",
                    file=sys.stderr,
                )
            elif much > most:
                self.ray.shutdown()
                raise ValueError(f"a run needs {much:g} {what}, and this machine has {most:g}: ask for less")

    def has_room(self) -> bool:
        return True  # Ray keeps what waits, and a cluster that grows by itself wants to see it

    def give(self, group: Group) -> None:
        task = self.submit(group)
        self.groups[task], self.steps[task] = group, 0

    def wait(self, seconds: float, told: Callable[[Group, int], None]) -> list[tuple[Group, Ended]]:
        tasks = list(self.groups)
        ready, under_way = self.ray.wait(tasks, num_returns=len(tasks), timeout=seconds) if tasks else ([], [])
        for task in under_way:
            lease = leases.seen(self.folder / self.groups[task][0].name)
            if lease is not None and lease.step > self.steps[task]:
                told(self.groups[task], lease.step - self.steps[task])
                self.steps[task] = lease.step
        return [(self.groups.pop(task), self._ended(task)) for task in ready]

    def _ended(self, task: Any) -> Ended:
        self.steps.pop(task)
        try:
            ended = self.ray.get(task)
        except self.ray.exceptions.RayError as error:
            return Ended([], f"Ray lost it: {str(error).strip().splitlines()[0]}", tries=TRIES)
        assert isinstance(ended, Ended)
        return ended

    def stop(self) -> None:
        for task in self.groups:
            with contextlib.suppress(self.ray.exceptions.RayError):
                self.ray.cancel(task, force=True)
        self.ray.shutdown()


def _check_answers(address: str) -> None:
    """Whether anybody is there: Ray itself tries for minutes. It looks for what is on this machine at its outer
    address."""
    import ray

    host, _, port = address.rpartition(":")
    if not port.isdigit() or "/" in host:  # "auto", or a client's ray://
        return
    host = ray.util.get_node_ip_address() if host in ("localhost", "127.0.0.1") else host.strip("[]")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWERS_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"nobody answers at {host}:{port} ({error}): give the address that `ray start --head` printed"
        ) from error


def _task(group: Group, folder: str, machine: Machine, threads: int) -> Ended:
    torch.set_num_threads(threads)
    with output_to(Path(folder) / group[0].name / "output.log"):
        return work(group, Path(folder), beside(Path(folder)), _silent, machine)


def _silent(steps: int) -> None:
    """The lease tells how far a run is."""
