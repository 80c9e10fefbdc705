"""A view's thread works in the context of the code that makes the view."""

from __future__ import annotations

from contextvars import ContextVar

from gameday.history.background import BackgroundView

SETTING: ContextVar[str] = ContextVar("setting", default="nobody set it")


class Viewed(BackgroundView):
    seen = ""

    def follow(self) -> None:
        self.seen = SETTING.get()


def test_what_the_maker_has_set_is_set_in_the_thread() -> None:
    token = SETTING.set("a server's address")
    view = Viewed()
    SETTING.reset(token)
    with view:
        pass
    assert view.seen == "a server's address"
