"""The embedded sets mean what they say, by a second reckoning: other code, the standard library, or the definition."""

import ast
import math
import operator
import re
from collections import Counter
from datetime import datetime
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.data.schema import Example
from seqloom.data.synthetic import grammar, phrases, sentences
from seqloom.data.synthetic import memory as copy_set
from seqloom.data.synthetic.registry import NAMES
from seqloom.data.synthetic.set import SPLITS, SyntheticSet

pytestmark = pytest.mark.slow

FIGURES = {"copy": {"distance": 12}, "copy_memory": {"delay": 3}, "adding": {"length": 9}}  # small ones are as telling


def some(name: str, part: str = "train", count: int = 60, seed: int = 0) -> list[Example]:
    return list(NAMES[name].examples(part, seed, count, **FIGURES.get(name, {})))


def test_dates_are_read_back_by_the_standard_library() -> None:
    for row in some("dates", count=3_000):
        assert _read_date(row.input).isoformat() == row.target


MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LOW = (
    *("first", "second", "third", "fourth", "fifth", "sixth"),
    *("seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
)


def _read_date(text: str) -> Any:
    words = re.sub(r"\b(in|on|the|of)\b|,", " ", text.lower()).split()
    if len(words) == 1 and "/" in words[0]:
        return datetime.strptime(words[0], "%Y/%m/%d").date()
    found = [piece for word in words for piece in (word.split("-") if "-" in word and word[0].isdigit() else [word])]
    year = next(word for word in found if re.fullmatch(r"\d{4}", word))
    month = next(word[:3] for word in found if word[:3] in MONTHS)
    day = next(number for word in found if word != year and (number := _day(word)))
    read = datetime.strptime(f"{year} {month} {day}", "%Y %b %d").date()
    weekdays = [word[:3] for word in found if word[:3] in WEEKDAYS and word[:3] != month]
    assert weekdays in ([], [read.strftime("%a").lower()]), text
    return read


def _day(word: str) -> int:
    if match := re.fullmatch(r"(\d{1,2})(st|nd|rd|th)?", word):
        number = int(match[1])
        ends = {"st": {1, 21, 31}, "nd": {2, 22}, "rd": {3, 23}, "th": {*range(4, 21), *range(24, 31)}}
        assert match[2] is None or number in ends[match[2]]
        return number
    teens = [f"{stem}teenth" for stem in ("thir", "four", "fif", "six", "seven", "eigh", "nine")]
    spelled = {
        **{name: number for number, name in enumerate([*LOW, *teens, "twentieth"], start=1)},
        **{f"twenty-{name}": 20 + number for number, name in enumerate(LOW[:9], start=1)},
        "thirtieth": 30,
        "thirty-first": 31,
    }
    return spelled.get(word, 0)


def test_every_form_of_dates_occurs() -> None:
    shapes = {re.sub(r"[A-Za-z]+(-[a-z]+)?", "w", re.sub(r"\d+", "d", row.input)) for row in some("dates", count=2_000)}
    assert len(shapes) >= 15


def test_reviews_mean_the_product_of_three_signs() -> None:
    for row in some("reviews", count=3_000):
        *clauses, last = row.input.split(" , ")
        mine = next(clause for clause in clauses if re.match(r"i |to me|nobody|it would be", clause))
        sign = 1 if mine.split()[-1] in sentences.KIND else -1
        sign *= -1 if re.search(r"\b(not|nobody|hardly|wrong)\b", mine) else 1
        sign *= -1 if re.search(r"none of that|all of this|or so|opposite", last) else 1
        assert row.target == ("positive" if sign > 0 else "negative"), row.input


def test_reviews_of_a_pair_differ_in_one_word_and_in_their_label() -> None:
    rows = some("reviews", count=1_000)
    for one, other in zip(rows[::2], rows[1::2], strict=True):
        words = list(zip(one.input.split(), other.input.split(), strict=True))
        assert sum(left != right for left, right in words) == 1 and one.target != other.target


@pytest.mark.parametrize("part", SPLITS)
def test_every_bag_of_words_is_a_statement_and_a_question(part: str) -> None:
    rows = some("questions", part, 1_000)
    bags: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        bags.setdefault(tuple(sorted(row.input.split())), []).append(row.target)
    assert all(sorted(labels) == ["question", "statement"] for labels in bags.values())
    for row in rows:
        verb = re.search(r"\b(is|was|will|has|can|must|could|should) (the )?", row.input)
        assert (row.target == "question") == (verb[2] is not None), row.input


def test_homographs_name_a_sense_of_a_word_that_stands_in_the_text() -> None:
    for row in some("homographs", count=3_000):
        word = row.target.split("/")[0]
        assert word in row.input.split(), row
        assert row.input.isascii() == word.isascii()


def test_persian_sentences_run_from_right_to_left_and_mean_three_things() -> None:
    persian = Counter(row.target for row in some("homographs", count=1_000) if "شیر" in row.input)
    assert set(persian) == {"شیر/milk", "شیر/lion", "شیر/tap"}


@pytest.mark.parametrize("part", SPLITS)
def test_movies_have_legal_tags_and_entities_of_their_part_alone(part: str) -> None:
    for row in some("movies", part, 200):
        for before, tag in pairwise(("O", *row.target)):
            assert not tag.startswith("I-") or before[2:] == tag[2:]
        assert any(tag != "O" for tag in row.target)
    others = {
        entity for other in SPLITS if other != part for row in some("movies", other, 200) for entity in _names(row)
    }
    assert not others & {entity for row in some("movies", part, 200) for entity in _names(row)}


def _names(row: Example) -> set[str]:
    pieces = zip(row.input.words(), row.target, strict=True)
    marked = " ".join({"O": "|", "B": f"| {word}", "I": word}[tag[0]] for word, tag in pieces)
    return {name.strip() for name in marked.split("|") if name.strip()}


def test_words_of_titles_stand_outside_of_titles_too() -> None:
    outside, inside = set(), set()
    for row in some("movies", count=3_000):
        for word, tag in zip(row.input.words(), row.target, strict=True):
            (outside if tag == "O" else inside).add(word)
    assert {*phrases.THINGS, *phrases.LIKENESSES, "the", "a"} <= outside & inside


@given(st.integers(4, 60), st.integers(0, 50))
@settings(max_examples=40)
def test_brackets_are_balanced_when_a_stack_says_so(length: int, seed: int) -> None:
    for row in islice(NAMES["brackets"].examples("train", seed, length=length), 6):
        text = row.input.replace(" ", "")
        assert len(text) == length // 2 * 2
        while (shorter := re.sub(r"\(\)|\[\]|\{\}", "", text)) != text:
            text = shorter
        assert row.target == ("broken" if text else "balanced")


def test_brackets_have_the_same_bag_in_both_classes() -> None:
    rows = some("brackets", count=1_000)
    for one, other in zip(rows[::2], rows[1::2], strict=True):
        assert Counter(one.input) == Counter(other.input) and one.target != other.target


OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


@given(st.integers(3, 12), st.integers(0, 50))
@settings(max_examples=40)
def test_arithmetic_is_what_python_reckons(operators: int, seed: int) -> None:
    for row in islice(NAMES["arithmetic"].examples("train", seed, operators=operators), 10):
        assert 1 <= len(re.findall(r"[-+*]", row.input)) <= operators
        assert str(_reckoned(ast.parse(row.input, mode="eval").body) % 10) == row.target


def _reckoned(tree: Any) -> int:
    if isinstance(tree, ast.Constant):
        return tree.value
    return OPERATIONS[type(tree.op)](_reckoned(tree.left), _reckoned(tree.right))


@given(st.integers(6, 300), st.integers(0, 50))
@settings(max_examples=30)
def test_copy_asks_for_the_token_shown_so_many_steps_ago(distance: int, seed: int) -> None:
    for row in islice(NAMES["copy"].examples("dev", seed, distance=distance), 4):
        steps = row.input.split(" ")
        assert steps[-1] == copy_set.QUESTION and steps[len(steps) - 1 - distance] == row.target
        assert len(steps) == distance + 1 and set(steps[:-1]) <= set(copy_set.TOKENS)


@given(st.integers(1, 300), st.integers(0, 50))
@settings(max_examples=30)
def test_copy_memory_has_the_published_form(delay: int, seed: int) -> None:
    for row in islice(NAMES["copy_memory"].examples("train", seed, delay=delay), 3):
        steps = "".join(row.input.words())
        assert re.fullmatch(rf"[1-8]{{10}}0{{{delay - 1}}}9{{11}}", steps) and len(steps) == delay + 20
        assert "".join(row.target) == "0" * (delay + 10) + steps[:10]


@given(st.integers(2, 400), st.integers(0, 50))
@settings(max_examples=30)
def test_adding_sums_the_two_marked_numbers(length: int, seed: int) -> None:
    for row in islice(NAMES["adding"].examples("train", seed, length=length), 4):
        values, marks = row.input.T.astype(np.float64)
        assert row.input.shape == (length, 2) and sorted(marks)[-2:] == [1, 1] and marks.sum() == 2
        assert row.target == (pytest.approx(float(values @ marks), abs=1e-12),)
        assert values.min() >= 0 and values.max() < 1


@pytest.mark.slow
def test_adding_has_marks_over_the_whole_length_and_a_guess_of_one_costs_a_sixth() -> None:
    rows = list(NAMES["adding"].examples("train", count=20_000, length=10))
    counts = sum(row.input[:, 1] for row in rows)
    assert np.allclose(counts / 40_000, 0.1, atol=0.006)
    assert sum((row.target[0] - 1) ** 2 for row in rows) / 20_000 == pytest.approx(1 / 6, abs=0.006)


@pytest.mark.parametrize(
    ("name", "lengths", "count"), [("listops", (501, 1999), 40), ("listops_small", (20, 100), 500)]
)
def test_listops_is_the_value_of_its_list(name: str, lengths: tuple[int, int], count: int) -> None:
    for row in some(name, count=count):
        assert lengths[0] <= len(row.input.split()) <= lengths[1]
        assert str(_value(iter(row.input.split()))) == row.target
        assert _deepest(row.input) <= 9  # operators: at depth 10 there are digits alone


def _value(tokens: Any) -> int | None:
    """Recursive descent over the tokens; None at a closing bracket."""
    token = next(tokens)
    if token == "X":
        return None
    if token.isdigit():
        return int(token)
    values = list(iter(lambda: _value(tokens), None))
    assert 2 <= len(values) <= 10
    return {"[MIN": min, "[MAX": max, "[MED": lambda all_: int(np.median(all_)), "[SM": lambda all_: sum(all_) % 10}[
        token
    ](values)


def _deepest(text: str) -> int:
    heights = np.cumsum([token.startswith("[") - (token == "X") for token in text.split()])
    return int(heights.max())


def test_listops_grows_operators_with_probability_one_quarter() -> None:
    """In the shape of all trees, kept or not: lengths from 1 on, depth 3."""
    rows = NAMES["listops"].examples("train", count=None, more_than=3, fewer_than=2_000, depth=3)
    nodes = [token for row in islice(rows, 3_000) for token in row.input.split()[1:] if token != "X"]
    below_root = [token for token in nodes if token.startswith("[")]
    inner = sum(
        _children_of_the_root(row.input)
        for row in islice(NAMES["listops"].examples("train", more_than=3, depth=3), 3_000)
    )
    assert len(below_root) / inner == pytest.approx(0.25, abs=0.015)
    kinds = Counter(below_root)
    assert all(
        kinds[f"[{kind}"] / len(below_root) == pytest.approx(0.25, abs=0.03) for kind in ("MIN", "MAX", "MED", "SM")
    )


def _children_of_the_root(text: str) -> int:
    height = children = 0
    for token in text.split():
        children += height == 1 and token != "X"
        height += token.startswith("[") - (token == "X")
    return children


def test_grammar_texts_are_worth_what_their_entropy_says() -> None:
    texts = [row.input for row in some("grammar", count=500)]
    bits = np.array([grammar.surprise(text) for text in texts])
    words = np.array([len(text.split()) for text in texts])
    exact = grammar.worth()
    assert abs(bits.mean() - exact.bits) < 4 * bits.std() / math.sqrt(len(bits))
    assert abs(words.mean() - exact.words) < 4 * words.std() / math.sqrt(len(words))


def test_the_probabilities_of_short_sentences_are_those_of_their_only_derivation() -> None:
    chance = 0.5 * (0.45 * 0.6 * 0.25) * (0.35 * 0.4)  # the fox sings
    assert grammar.surprise("the fox sings . the fox sings . the fox sings .") == pytest.approx(-3 * math.log2(chance))


def test_rules_are_chosen_so_many_of_a_hundred_times() -> None:
    for rules in grammar.RULES.values():
        chosen = Counter(grammar._chosen(hundredth, rules) for hundredth in range(100))
        assert chosen == {rule.tokens: rule.percent for rule in rules}


def test_the_entropy_is_the_fixed_point_of_its_equation() -> None:
    bits, words = dict.fromkeys(grammar.RULES, 0.0), dict.fromkeys(grammar.RULES, 0.0)
    for _ in range(400):  # each round adds one level of the trees
        bits = {name: sum(_bits(rule, bits) for rule in rules) for name, rules in grammar.RULES.items()}
        words = {name: sum(_words(rule, words) for rule in rules) for name, rules in grammar.RULES.items()}
    start = grammar.START
    assert grammar.worth() == pytest.approx((3 * bits[start], 3 * words[start]), rel=1e-12)


def _bits(rule: grammar.Rule, bits: dict[str, float]) -> float:
    share = rule.percent / 100
    return share * (sum(bits.get(token, 0.0) for token in rule.tokens) - math.log2(share))


def _words(rule: grammar.Rule, words: dict[str, float]) -> float:
    return rule.percent / 100 * sum(words.get(token, 1.0) for token in rule.tokens)


@pytest.mark.parametrize(("right", "wrong"), [("sings", "sing"), ("sees a drum", "see a drum")])
def test_a_verb_agrees_with_a_noun_far_away(right: str, wrong: str) -> None:
    rest = "the fox waits . the fox waits ."
    subject = "the fox that the poets that two bakers near the mills hear admire"
    assert math.isfinite(grammar.surprise(f"{subject} {right} . {rest}"))
    assert math.isinf(grammar.surprise(f"{subject} {wrong} . {rest}"))


def test_pictures_are_brighter_where_the_shape_is() -> None:
    for row in some("pictures", count=300):
        assert row.input.shape == (16, 16, 1) and row.input.min() >= 0 and row.input.max() <= 1
        gray = np.sort(row.input.ravel())
        assert gray[-8:].mean() - gray[:128].mean() > 0.3


def test_pictures_move_and_grow() -> None:
    bright = [np.argwhere(row.input[:, :, 0] > 0.4) for row in some("pictures", count=300)]
    centers, sizes = np.array([spots.mean(axis=0) for spots in bright]), np.array([len(spots) for spots in bright])
    assert (centers.std(axis=0) > 1).all() and sizes.std() > 10


def test_the_table_is_closed_and_says_what_is_in_it() -> None:
    assert all(isinstance(one, SyntheticSet) and one.name == name for name, one in NAMES.items())
    assert {one.task for one in NAMES.values()} == {"classify", "regress", "tag", "lm", "translate"}
    assert all(one.description and "\n" not in one.description for one in NAMES.values())
