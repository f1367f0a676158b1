import pytest


@pytest.fixture(scope="package")
def cluster():
    """A Ray cluster of this machine, for the tests of a folder."""
    import ray

    from securevfl.engine.cluster.ray_connection import connect

    with pytest.MonkeyPatch.context() as patch:
        # Each party takes a process and ends it. Processes that are started before they are asked
        # for would cost more than they save. Ray would also make them nicer by 15: on a busy
        # machine they then hardly begin, while others' tests run on.
        for name in ("prestart_worker_first_driver", "enable_worker_prestart", "worker_niceness"):
            patch.setenv(f"RAY_{name}", "0")
        connect(None)
    yield
    ray.shutdown()
