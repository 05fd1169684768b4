"""The embedded sets are pure, divided, balanced, and refuse what makes no sense."""

import math
import re
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.data.kinds.words import Words
from seqloom.data.schema import Example
from seqloom.data.synthetic import sentences
from seqloom.data.synthetic.registry import NAMES, named
from seqloom.data.synthetic.set import SPLITS, RandomDraws
from seqloom.errors import ConfigError, DataError

ALL = pytest.mark.parametrize("name", NAMES)
QUICK = [name for name in NAMES if name != "listops"]  # trees of the published length are rare, so they take longer
FIGURES = {"copy": {"distance": 12}, "copy_memory": {"delay": 3}, "adding": {"length": 9}}  # small ones are as telling


def some(name: str, part: str = "train", count: int = 60, seed: int = 0) -> list[Example]:
    return list(NAMES[name].examples(part, seed, count, **FIGURES.get(name, {})))


def plain(example: Example) -> tuple[Any, ...]:
    """An example as a value that can be compared: arrays as their bytes."""
    given = example.input
    return (given.tobytes(), given.shape, *example[1:]) if isinstance(given, np.ndarray) else tuple(example)


def text_of(example: Example) -> str:
    return example.input.text if isinstance(example.input, Words) else str(example.input)


# purity


@ALL
def test_a_prefix_does_not_depend_on_how_many_examples_are_asked_for(name: str) -> None:
    whole = [plain(example) for example in some(name, count=40)]
    assert [plain(example) for example in some(name, count=17)] == whole[:17]


@pytest.mark.slow
@ALL
def test_streams_read_in_turns_do_not_disturb_each_other(name: str) -> None:
    one, other = (NAMES[name].examples(part, 3, 12, **FIGURES.get(name, {})) for part in ("train", "dev"))
    turns = [(plain(first), plain(second)) for first, second in zip(one, other, strict=True)]
    expected = zip(some(name, "train", 12, 3), some(name, "dev", 12, 3), strict=True)
    assert turns == [(plain(first), plain(second)) for first, second in expected]


@ALL
def test_the_global_generator_is_neither_read_nor_moved(name: str) -> None:
    np.random.seed(1)  # the global state is what is looked at
    before = np.random.get_state()[1].tolist()
    first = [plain(example) for example in some(name, count=5)]
    assert np.random.get_state()[1].tolist() == before
    np.random.seed(2)
    assert [plain(example) for example in some(name, count=5)] == first


@pytest.mark.slow
@ALL
def test_another_seed_gives_other_examples(name: str) -> None:
    assert [plain(one)[0] for one in some(name, seed=0)] != [plain(one)[0] for one in some(name, seed=1)]


def test_the_stream_of_words_is_the_published_philox() -> None:
    """Known answers of Random123 for philox4x64-10, as numpy counts: the first block is that of counter 1."""
    draws = RandomDraws("x", "train", 0)
    key = draws._words.state["state"]["key"].tolist()
    assert draws._words.random_raw(4).tolist() == _philox([1, 0, 0, 0], key)


def _philox(counter: list[int], key: list[int]) -> list[int]:
    """Salmon et al. 2011, figure 2 and table 2: ten rounds on four words."""
    mask = 2**64 - 1
    for _ in range(10):
        one, two = 0xD2E7470EE14C6C93 * counter[0], 0xCA5A826395121157 * counter[2]
        counter = [
            (two >> 64) ^ counter[1] ^ key[0],
            two & mask,
            (one >> 64) ^ counter[3] ^ key[1],
            one & mask,
        ]
        key = [(key[0] + 0x9E3779B97F4A7C15) & mask, (key[1] + 0xBB67AE8584CAA73B) & mask]
    return counter


def test_every_set_part_and_seed_has_a_stream_of_its_own() -> None:
    streams = [RandomDraws(*key) for key in (("x", "train", 0), ("y", "train", 0), ("x", "dev", 0), ("x", "train", 1))]
    assert len({stream.below(2**60) for stream in streams}) == 4


@given(st.integers(1, 10**6), st.integers(0, 100))
def test_draws_stay_within_their_range(count: int, seed: int) -> None:
    draws = RandomDraws("range", "train", seed)
    assert all(0 <= draws.below(count) < count for _ in range(20))


def test_draws_are_uniform() -> None:
    draws = RandomDraws("uniform", "dev", 0)
    counts = Counter(draws.below(7) for _ in range(70_000))
    squares = sum((count - 10_000) ** 2 / 10_000 for count in counts.values())
    assert len(counts) == 7 and squares < 22.5  # chi square of 6 degrees, one in a thousand
    assert abs(float(draws.reals(100_000).mean()) - 0.5) < 0.005
    assert sum(draws.chance(25) for _ in range(100_000)) == pytest.approx(25_000, abs=550)  # four standard deviations


# parts


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_parts_share_no_input_whatever_the_seeds(name: str) -> None:
    seen = [{plain(one)[0] for seed in range(3) for one in some(name, part, 100, seed)} for part in SPLITS]
    assert not (seen[0] & seen[1] or seen[0] & seen[2] or seen[1] & seen[2])


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_no_input_stands_twice_in_a_part(name: str) -> None:
    inputs = [plain(one)[0] for one in some(name, count=2_000)]
    assert len(set(inputs)) == len(inputs) == 2_000


KEYS = {  # of the sets that draw two rows together
    "questions": lambda text: " ".join(sorted(text.split())),
    "brackets": lambda text: re.sub(r"[)\]}]", ".", text.replace(" ", "")),
    "reviews": lambda text: re.sub(rf"\b({'|'.join(sentences.KIND + sentences.UNKIND)})\b", "_", text),
}


@pytest.mark.parametrize("name", KEYS)
def test_the_key_that_decides_the_part_follows_from_either_row_of_a_pair(name: str) -> None:
    draws = RandomDraws("keys", "train", 0)
    given = {parameter: bounds.default for parameter, bounds in NAMES[name].parameters.items()}
    for _ in range(300):
        drawn = NAMES[name].draw(draws, **given)
        assert {KEYS[name](text) for text, _ in drawn.rows} == {drawn.key}


@pytest.mark.slow
@ALL
def test_ids_and_places_are_unique_and_count_from_one(name: str) -> None:
    rows = some(name, "dev", 20)
    assert len({row.id for row in rows}) == 20
    assert [str(row.place) for row in rows] == [f"{name}/dev:{line}" for line in range(1, 21)]


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in QUICK if NAMES[name].schema.target.name == "label"])
def test_labels_are_balanced(name: str) -> None:
    labels = NAMES[name].schema.labels
    counts = Counter(row.target for row in some(name, count=6_000))
    if name == "listops_small":  # its labels are as they fall
        assert set(counts) == set(labels)
        return
    share = 1 / len(labels)
    bound = 4.5 * math.sqrt(share * (1 - share) / 6_000)  # so many standard deviations of a fair draw
    assert {label: counts[label] / 6_000 for label in labels} == pytest.approx(dict.fromkeys(labels, share), abs=bound)


@ALL
def test_targets_fit_the_schema(name: str) -> None:
    schema = NAMES[name].schema
    for row in some(name):
        if schema.target.name == "label":
            assert row.target in schema.labels
        elif schema.target.name == "tags":
            assert set(row.target) <= set(schema.labels) and len(row.target) == len(row.input.words())
        elif schema.target.name == "numbers":
            assert all(isinstance(number, float) for number in row.target)
        else:
            assert row.target is None if schema.target.name == "nothing" else isinstance(row.target, str)


@ALL
def test_texts_hold_letters_digits_and_plain_marks_only(name: str) -> None:
    if NAMES[name].schema.input.name in ("vectors", "picture"):
        assert all(np.isfinite(row.input).all() and row.input.dtype == np.float32 for row in some(name))
        return
    for row in some(name, count=1_000 if name != "listops" else 20):
        assert re.fullmatch(r"[A-Za-z0-9آ-ی ,.\-/?()\[\]{}+*]+", text_of(row)), row
        assert "  " not in text_of(row) and text_of(row) == text_of(row).strip()


# refusals


def test_an_unknown_set_part_or_parameter_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'dates'"):
        named("date")
    with pytest.raises(ConfigError, match="Did you mean 'train'"):
        named("dates").examples("trian")
    with pytest.raises(ConfigError, match="Did you mean 'distance'"):
        named("copy").examples("train", distanse=3)
    with pytest.raises(ConfigError, match="it has none"):
        named("dates").examples("train", length=3)


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "3", None, 10**9])
def test_a_parameter_out_of_range_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="distance: expected a whole number of 6"):
        named("copy").examples("train", distance=wrong)


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "3"])
def test_a_seed_or_count_that_is_no_whole_number_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="seed: "):
        named("dates").examples("train", seed=wrong)
    with pytest.raises(ConfigError, match="count: "):
        named("dates").examples("train", count=wrong)


def test_a_space_that_is_used_up_says_so_instead_of_repeating_itself() -> None:
    with pytest.raises(
        DataError, match=r"no more than \d+ different draws for its part 'test'.*lower count, or change"
    ):
        list(named("brackets").examples("test", count=10_000, length=6))


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_ten_thousand_examples_take_less_than_two_seconds(name: str) -> None:
    began = time.process_time()
    assert sum(1 for _ in NAMES[name].examples("train", count=10_000)) == 10_000
    assert time.process_time() - began < 2


@pytest.mark.sampled(5)
@pytest.mark.slow
@ALL
def test_default_sizes_are_those_of_the_set(name: str) -> None:
    one = NAMES[name]
    assert one.sizes.train >= one.sizes.dev >= 500 and one.sizes.test >= 500
    if name in QUICK:
        assert sum(1 for _ in one.examples("dev")) == one.sizes.dev
