from tests.game_days.conftest import arena, clean_arena

__all__ = ["arena", "clean_arena"]
