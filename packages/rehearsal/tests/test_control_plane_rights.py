"""The rights that a rehearsal seeds for game-days of the control plane, in the embedded control plane."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gameday_rehearsal.seed import seeding
from kubesim.kubeconfig import Kubeconfig
from tests.rehearsal.control_plane_rights import CANARY, CLIENT, answers, expected
from tests.support.world import World


@pytest.fixture(scope="module")
def kubeconfigs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Kubeconfigs of both accounts, on a server of their own: other tests' accounts keep the rights that they have."""
    folder = tmp_path_factory.mktemp("accounts")
    world = World(folder)
    try:
        with seeding(world.admin_kubeconfig) as seeder:
            seeder.control_plane_rights()
            yield {name: seeder.service_account_kubeconfig(name, world.kubeconfig(name)) for name in (CLIENT, CANARY)}
    finally:
        world.end()


@pytest.mark.parametrize("account", [CLIENT, CANARY])
@pytest.mark.slow
def test_an_account_may_do_what_it_is_for_and_no_more(kubeconfigs: dict[str, Path], account: str) -> None:
    found = Kubeconfig.load(kubeconfigs[account])
    headers = {"Authorization": f"Bearer {found.token}"}
    with httpx.Client(base_url=found.server, headers=headers, verify=found.tls or True, trust_env=False) as http:
        assert answers(http, account) == expected(account)
