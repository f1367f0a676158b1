import pytest


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of this machine, for the tests of a module."""
    import ray

    from securevfl.engine.cluster.ray_connection import connect

    connect(None)
    yield
    ray.shutdown()
