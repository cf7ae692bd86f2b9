"""One bus delivers every event in the order of subscription, and last to the subscribers of the
owner whose deployer it is of.
"""

from __future__ import annotations

from gitops_ds.core.events.base import Event, EventOrigin, Listed
from gitops_ds.core.events.bus import EventBus

HERE = EventOrigin("fleet.eu-1", "example.com/fleet")


def test_subscribers_get_an_event_in_their_order_and_those_of_its_owner_last() -> None:
    handled: list[str] = []
    bus = EventBus(lambda _: handled.append("log"))
    with bus.subscribed(HERE.owner, lambda _: handled.append("owner")):
        bus.subscribers.append(lambda _: handled.append("page"))
        bus.of(HERE)(Listed(1.0))
    assert handled == ["log", "page", "owner"]


def test_an_owner_gets_no_event_of_another_one_and_none_after_its_end() -> None:
    handled: list[Event] = []
    bus = EventBus()
    with bus.subscribed(HERE.owner, handled.append):
        bus.publish(Listed(1.0))
        bus.of(EventOrigin("other", HERE.repository))(Listed(2.0))
        bus.of(EventOrigin(repository=HERE.repository))(Listed(3.0))
        bus.of(HERE)(Listed(4.0))
    bus.of(HERE)(Listed(5.0))
    assert handled == [Listed(4.0, origin=HERE)]
