"""No page is left out of what opens every page."""

from tests.browser.named import OUTSIDE, PAGES, routes


def test_every_route_of_the_front_end_is_opened_with_long_names() -> None:
    assert len(routes()) > 20
    assert routes() == {*PAGES, *OUTSIDE}
