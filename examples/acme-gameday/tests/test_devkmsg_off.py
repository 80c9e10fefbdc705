import pytest
from acme_gameday.devkmsg_off import PATH, DevkmsgOffFault, DevkmsgOffParameters

from gameday import HostError

FAULT, PARAMETERS = DevkmsgOffFault(), DevkmsgOffParameters()


class OneFile:
    """As much of a host as this fault uses."""

    def __init__(self, content: str) -> None:
        self.content = content

    def read_file(self, path: str) -> str:
        assert path == PATH
        return self.content + "\n"

    def write_file(self, path: str, content: str) -> None:
        assert path == PATH and content.endswith("\n")  # without it the kernel refuses
        self.content = content.removesuffix("\n")


def test_it_goes_in_and_comes_out_twice_from_another_process() -> None:
    host = OneFile("ratelimit")
    state = FAULT.inject(PARAMETERS, 0, host).undo_state
    assert not FAULT.verify_undone(PARAMETERS, 0, host, state)
    for _ in range(2):
        DevkmsgOffFault().undo(PARAMETERS, 0, host, dict(state))
    assert FAULT.verify_undone(PARAMETERS, 0, host, state)
    assert host.content == "ratelimit"


def test_it_refuses_a_host_that_has_it_already() -> None:
    with pytest.raises(HostError, match="nothing to mute"):
        FAULT.inject(PARAMETERS, 0, OneFile("off"))


def test_an_undo_without_any_state_changes_nothing() -> None:
    host = OneFile("on")
    FAULT.undo(PARAMETERS, 0, host, {})
    assert host.content == "on" and FAULT.verify_undone(PARAMETERS, 0, host, {})
