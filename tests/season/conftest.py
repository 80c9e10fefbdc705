from tests.cluster.kubernetes.conftest import reaper, runner, server, world
from tests.game_days.conftest import arena, clean_arena

__all__ = ["arena", "clean_arena", "reaper", "runner", "server", "world"]
