import pytest

from tests.runs.engines.forked import forks

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
def cluster(tmp_path_factory):
    """A Ray cluster of this machine, for the tests of a folder."""
    import ray
    from ray._private.parameter import RayParams

    from securevfl.engine.cluster.ray_connection import connect

    given = RayParams.update_if_absent

    with forks(tmp_path_factory.mktemp("forks")) as starter, pytest.MonkeyPatch.context() as patch:
        for name, value in RAY_SETTINGS.items():
            patch.setenv(name, value)
        more = {"setup_worker_path": str(starter)}
        patch.setattr(RayParams, "update_if_absent", lambda self, **own: given(self, **own | more))
        connect(None)
        patch.undo()
        yield
        ray.shutdown()
