from tests.gameday.conftest import arena, clean_arena
from tests.kubernetes.conftest import reaper, runner, server, world

__all__ = ["arena", "clean_arena", "reaper", "runner", "server", "world"]
