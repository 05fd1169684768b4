"""A Ray cluster writes the same bytes as one process and reports its failures; skipped where ray is not installed."""

import os
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from embedding_common import small_model, some_texts, write_texts
from seqloom.errors import ConfigError, DataError, RepeatError
from seqloom.search.embedding import ray_cluster
from seqloom.search.embedding.bulk import embed_file
from seqloom.search.embedding.ray_cluster import RayWorker, room
from seqloom.search.embedding.windows import WorkerSetup

NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")


def setup(threads: int = 2, device: str = "cpu", model: str = "nowhere") -> WorkerSetup:
    return WorkerSetup(model, device, "float32", 1_024, False, threads)


def nodes(*cores: int, gpus: int = 0) -> list[dict]:
    dead = {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
    return [dead, *({"Alive": True, "Resources": {"CPU": float(one), "GPU": float(gpus)}} for one in cores)]


def test_a_worker_fits_into_one_machine() -> None:
    assert room(setup(4), nodes(4, 4, 7, 2)) == (3, {"num_cpus": 4})
    assert room(setup(8, "cuda:0"), nodes(4, 4, gpus=2)) == (4, {"num_gpus": 1})
    with pytest.raises(
        ConfigError, match=r"as many threads as this process, 8.* more than 4 cores.* OMP_NUM_THREADS=4"
    ):
        room(setup(8), nodes(4, 4, 4, 4))
    with pytest.raises(ConfigError, match="no machine of the Ray cluster has one"):
        room(setup(1, "cuda"), nodes(4))


def test_a_worker_without_the_model_says_so_in_words_that_travel(tmp_path) -> None:
    model, other = small_model(tmp_path), tmp_path / "other"
    there = RayWorker(setup(1, model=str(model)), "the sum of another").ready()
    missing = RayWorker(setup(1, model=str(other)), "").ready()
    assert there is not None and f"{model} is a different model than here" in there.problem
    assert missing is not None and str(other) in missing.problem and "disk that all machines" in missing.fix


class Cluster:
    """What a driver sees of Ray, where some workers never get a place, and one call fails."""

    def __init__(self, ready: int, *, free: float = 8.0, fails: bool = False) -> None:
        self.ready, self.free, self.fails, self.killed = ready, free, fails, 0
        self.waited: list[tuple[int, float]] = []  # for how many, and how long at most
        self.exceptions = SimpleNamespace(RayError=LookupError)

    def is_initialized(self):
        return False

    def init(self, **_):
        os.environ.update({"RAY_ADDED": "1", "RAY_CHANGED": "by ray", "RAY_CONTESTED": "by ray"})

    def shutdown(self):
        pass

    def available_resources(self):
        return {"CPU": self.free} if self.free else {}

    def nodes(self):
        return nodes(4, 4)

    def remote(self, _kind):
        actor = SimpleNamespace(ready=SimpleNamespace(remote=object), made=SimpleNamespace(remote=lambda work: work))
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: actor))

    def wait(self, asked, *, num_returns, timeout):
        self.waited.append((num_returns, timeout))
        return asked[: self.ready], asked[self.ready :]

    def kill(self, _actor):
        self.killed += 1

    def get(self, asked):
        if self.fails:
            raise LookupError("The actor died.\nlong\ntraceback")
        return [None for _ in asked] if isinstance(asked, list) else asked


@pytest.fixture
def no_model(monkeypatch) -> None:
    monkeypatch.setattr(ray_cluster, "identity_of", lambda _: "one")


@pytest.mark.usefixtures("no_model")
def test_workers_that_get_no_place_are_given_up_and_none_at_all_is_reported() -> None:
    cluster = Cluster(3)
    workers = ray_cluster._workers(cluster, setup(1))
    assert (len(workers), cluster.killed) == (3, 5)
    assert list(ray_cluster._spread(cluster, workers, range(20))) == list(range(20))
    with pytest.raises(RepeatError, match=r"no worker was ready within 300 seconds"):
        ray_cluster._workers(Cluster(0), setup(1))


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(("free", "most"), [(8.0, 8), (3.0, 3), (0.0, 1)])
def test_nobody_waits_for_workers_that_have_no_place_now(free, most) -> None:
    cluster = Cluster(5, free=free)
    assert len(ray_cluster._workers(cluster, setup(1))) == 5  # those that are ready all the same work too
    assert max(count for count, seconds in cluster.waited if seconds) == most


def test_the_environment_is_as_it_was_but_for_what_others_have_set_meanwhile(monkeypatch) -> None:
    monkeypatch.setattr(os, "environ", {"RAY_CHANGED": "mine", "KEPT": "mine"})
    with ray_cluster._joined(Cluster(1)):
        assert os.environ[ray_cluster.QUIET] == "0"
        os.environ |= {"MINE": "set while the generator was open", "RAY_CONTESTED": "mine"}
    meanwhile = {"MINE": "set while the generator was open", "RAY_CONTESTED": "mine"}
    assert os.environ == {"RAY_CHANGED": "mine", "KEPT": "mine"} | meanwhile


def test_a_password_in_the_address_is_not_shown(monkeypatch) -> None:
    address = "ray://me:sec@ret@127.0.0.1:1"
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(
        ray_cluster, "_require_reachable", lambda _: (_ for _ in ()).throw(ValueError(f"bad {address}"))
    )
    with pytest.raises(ConfigError, match=r"Ray cannot join ray://127\.0\.0\.1:1: bad ray://127") as record:
        ray_cluster._join(Cluster(1))
    assert "sec" not in str(record.value) and record.value.__suppress_context__


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_a_cluster_at_which_nobody_listens_is_reported_at_once(address, monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match=rf"Ray cannot join {address}: .*refused"):
        ray_cluster._join(Cluster(1))


@pytest.mark.usefixtures("no_model")
def test_a_failure_of_the_cluster_is_an_error_of_ours() -> None:
    cluster = Cluster(1, fails=True)
    record = r"the Ray cluster failed: The actor died\. Fix: .*the same command to resume"
    with pytest.raises(RepeatError, match=record), ray_cluster._cluster_failures(cluster):
        ray_cluster._workers(cluster, setup(1))


@pytest.mark.soak
@NEEDS_RAY
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_cluster_makes_the_same_bytes_as_one_process(tmp_path, dtype) -> None:
    model, file = small_model(tmp_path), write_texts(tmp_path / "a.txt", some_texts(9_000))
    embed_file(model, file, tmp_path / "whole.npy", dtype=dtype)
    out = tmp_path / "v.npy"
    program = [sys.executable, "-m", "seqloom", "embed", model, file, "-o", out, "--engine", "ray", "--dtype", dtype]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*map(str, program), "--device", "cpu"], env=environment, timeout=300, check=False)
    assert done.returncode == 0
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()


@pytest.mark.soak
@NEEDS_RAY
@pytest.mark.filterwarnings("ignore")  # those of ray itself
def test_what_a_real_cluster_cannot_do_is_reported_and_the_environment_stays_as_it_was(tmp_path, monkeypatch) -> None:
    import ray

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    before, there = dict(os.environ), setup(1, model=str(small_model(tmp_path)))
    with ray_cluster._joined(ray):
        with pytest.raises(ConfigError, match="as many threads as this process, 4,096"):
            ray_cluster._workers(ray, there._replace(threads=4_096))
        monkeypatch.setattr(
            RayWorker, "ready", lambda _: ray_cluster.WorkerFailure("there is no model", "put it there")
        )
        with pytest.raises(DataError, match="there is no model"):
            ray_cluster._workers(ray, there)
        monkeypatch.setattr(RayWorker, "ready", lambda _: os._exit(1))
        with pytest.raises(RepeatError, match="the Ray cluster failed"), ray_cluster._cluster_failures(ray):
            ray_cluster._workers(ray, there)
        monkeypatch.setattr(RayWorker, "ready", lambda _: __import__("time").sleep(60))
        monkeypatch.setattr(ray_cluster, "PATIENCE", 2.0)
        with pytest.raises(RepeatError, match="no worker was ready"):
            ray_cluster._workers(ray, there)
    assert not ray.is_initialized() and dict(os.environ) == before
