"""Claims about fusion by ranks."""

from hypothesis import given
from hypothesis import strategies as st

from seqloom.search.search import DAMPING, fuse_rankings

ORDERS = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), min_size=1, max_size=4)


@given(ORDERS)
def test_a_score_is_the_sum_of_reciprocal_ranks(orders: list[list[str]]) -> None:
    found = fuse_rankings(orders)
    for name, score in found:
        ranks = [order.index(name) + 1 for order in orders if name in order]
        assert abs(score - sum(1 / (DAMPING + rank) for rank in ranks)) < 1e-12
    assert {name for name, _ in found} == {name for order in orders for name in order}
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)


@given(st.lists(st.sampled_from("abcdefgh"), unique=True))
def test_one_order_alone_and_twice_keeps_its_order(order: list[str]) -> None:
    assert [name for name, _ in fuse_rankings([order])] == [name for name, _ in fuse_rankings([order, order])] == order
