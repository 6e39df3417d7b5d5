"""The interface that leads to other nodes, in network namespaces with an interface of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from evenkeel.runner.interfaces import interface_towards

from scripts.networks import DEVICE, Network, NodeNetworks
from tests.executors.cut_off import or_skipped


@pytest.fixture
def links() -> Iterator[NodeNetworks]:
    network = Network()
    made = NodeNetworks(network, "10.77.0.1", {"a": "10.77.0.11", "b": "10.77.0.12"})
    try:
        with or_skipped():
            made.up()
        yield made
    finally:
        made.down()
        network.close()


@pytest.mark.parametrize(
    ("addresses", "name"),
    [
        (["10.77.0.12"], DEVICE),
        (["10.77.0.11"], DEVICE),  # its own
        (["127.0.1.1", "10.77.0.12"], DEVICE),  # as Debian has it of a machine's own name
        (["no-such-host.invalid", "10.77.0.12"], DEVICE),
        (["127.0.0.1", "127.0.1.1"], None),
        (["192.0.2.7"], None),  # no way leads there
        ([], None),
    ],
)
def test_it_is_the_one_by_which_others_are_reached(links: NodeNetworks, addresses: list[str], name: str | None) -> None:
    with links.of("a").inside():
        assert interface_towards(addresses) == name
