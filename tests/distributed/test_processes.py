import numpy as np
import pytest
import torch

from distributed.cases import gradient_alone, whole_again
from distributed.forking import Forks
from seqloom.errors import ConfigError
from seqloom.training.devices import Alone
from seqloom.training.distributed import joined

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_bytes_and_sums_reach_every_rank(forks: Forks, ranks: int) -> None:
    answers = forks.answers("distributed.cases:travelling", ranks, {"size": 3})
    for rank, answer in enumerate(answers):
        assert answer["count"] == [rank, ranks]
        assert answer["sum"] == [ranks * (ranks + 1) / 2] * 2
        assert answer["share"] == "from 0" * 3
        assert answer["gather"] == [list(range(3 * other)) for other in range(ranks)]


def test_nothing_travels_as_nothing(forks: Forks) -> None:
    for answer in forks.answers("distributed.cases:travelling", 2, {"size": 0}):
        assert answer["share"] == "" and answer["gather"] == [[], []]


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("pieces", [[1, 1], [3, 1]])
def test_gradients_are_summed_over_ranks_however_each_cuts_its_share(
    forks: Forks, sharded: bool, pieces: list[int]
) -> None:
    alone = np.concatenate(gradient_alone())
    for answer in forks.answers("distributed.cases:gradient", 2, {"sharded": sharded, "pieces": pieces}):
        np.testing.assert_allclose(np.concatenate(answer), alone, rtol=0, atol=1e-5 * np.abs(alone).max())


def test_sharded_training_equals_replicated(forks: Forks) -> None:
    replicated, other = forks.answers("distributed.cases:weights_after", 2, {"sharded": False, "steps": 20})
    assert replicated == other
    for sharded in forks.answers("distributed.cases:weights_after", 2, {"sharded": True, "steps": 20}):
        np.testing.assert_allclose(np.concatenate(sharded), np.concatenate(replicated), rtol=1e-5, atol=1e-6)


def test_three_ranks_that_go_on_add_up_in_the_same_order_as_before(forks: Forks) -> None:
    through = forks.answers("distributed.cases:rewrapped", 3, {"steps": 4, "settled": True})
    resumed = forks.answers("distributed.cases:rewrapped_anew", 3, {"steps": 4, "settled": True})
    assert through == resumed


def test_without_settled_buckets_they_do_not(forks: Forks) -> None:
    through = forks.answers("distributed.cases:rewrapped", 3, {"steps": 4, "settled": False})
    resumed = forks.answers("distributed.cases:rewrapped_anew", 3, {"steps": 4, "settled": False})
    assert through != resumed


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_parts_of_two_ranks_make_a_whole_that_other_numbers_of_ranks_load(forks: Forks, ranks: int) -> None:
    parts = forks.answers("distributed.cases:parts", 2, {})
    whole = {name: tensor.tolist() for name, tensor in whole_again(parts).items()}
    assert len(parts[0]["tensors"]["0.weight"]) < 7
    weights = {name: value for name, value in whole.items() if "exp_avg" not in name}
    assert weights == parts[0]["whole"] == parts[1]["whole"]
    assert torch.tensor(whole["0.weight.exp_avg"]).shape == (7, 5)
    for answer in forks.answers("distributed.cases:loaded", ranks, {"whole": weights}):
        assert answer == weights


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["killed", "raises", "exits"])
@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_ends_takes_the_other_with_it_in_one_line(forks: Forks, how: str, who: int) -> None:
    outcomes = forks.run("distributed.cases:failing", 2, {"how": how, "who": who})
    assert outcomes[who].code == {"killed": -9, "raises": 1, "exits": 5}[how]
    other = outcomes[1 - who]
    assert other.code == 1
    assert other.stderr.splitlines() == [
        f"error: rank {1 - who} of 2: rank {who} has ended before the run was over. "
        "Fix: run the same command again; it resumes from the newest checkpoint."
    ]
    assert max(outcome.seconds for outcome in outcomes) < 15


def test_a_stopped_rank_is_woken_for_its_stacks_and_all_end(forks: Forks) -> None:
    outcomes = forks.run("distributed.cases:failing", 2, {"how": "stopped", "who": 1, "timeout": 2.0})
    assert all(outcome.code not in (0, -9) for outcome in outcomes)
    assert "rank 1 was stopped" in outcomes[0].stderr and "in all_reduce" not in outcomes[0].stderr.splitlines()[-1]
    assert "in _stopped" in outcomes[1].stderr or "in failing" in outcomes[1].stderr
    assert max(outcome.seconds for outcome in outcomes) < 15


def test_a_rank_that_hangs_says_where_and_all_end(forks: Forks) -> None:
    outcomes = forks.run("distributed.cases:failing", 2, {"how": "hangs", "who": 1, "timeout": 1.0})
    assert [outcome.code for outcome in outcomes] == [1, 1]
    assert "in wait" in outcomes[1].stderr
    assert max(outcome.seconds for outcome in outcomes) < 15


def test_a_rank_may_come_late_to_what_is_no_step(forks: Forks) -> None:
    assert forks.answers("distributed.cases:late", 2, {"seconds": 1.5, "timeout": 0.5}) == ["all here"] * 2


def test_without_torchrun_there_is_one_process() -> None:
    with joined() as ranks:
        assert isinstance(ranks, Alone)


def test_one_process_cannot_shard() -> None:
    with pytest.raises(ConfigError, match="--processes 2"), joined(sharded=True):
        pass
