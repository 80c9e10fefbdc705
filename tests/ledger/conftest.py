from tests.cluster.kubernetes.conftest import reaper, runner, server, world

__all__ = ["reaper", "runner", "server", "world"]
