import pytest

from tests.runs.engines.forked import forks, start_forked

# Each party takes a process and ends it. Processes that are started before they are asked for would
# cost more than they save. Ray would also make them nicer by 15: on a busy machine they then hardly
# begin, while others' tests run on. And a process that is stopped is waited for, for five seconds.
RAY_SETTINGS = {
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_worker_niceness": "0",
    "RAY_kill_worker_timeout_milliseconds": "500",
}


@pytest.fixture(scope="package")
def starter(tmp_path_factory):
    """What a cluster starts for a worker."""
    with forks(tmp_path_factory.mktemp("forks")) as path:
        yield path


@pytest.fixture(scope="package")
def cluster(starter):
    """A Ray cluster of this machine, for the tests of a folder."""
    import ray

    from securevfl.engine.cluster.ray_connection import connect

    start_forked(starter)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in RAY_SETTINGS.items():
            patch.setenv(name, value)
        connect(None)
    yield
    ray.shutdown()
