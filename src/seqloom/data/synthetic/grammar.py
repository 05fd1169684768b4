"""Grammar: text from a small context-free grammar with known entropy, so the lowest possible perplexity is known.

    the fox that the poets near the mill admire sings . two herons wait . the baker hears a drum .

A verb agrees with its noun in number across everything between them: a phrase with its own noun, a clause, or a nested
clause. The probability of every rule is a whole percentage. From the rules follow, exactly,

    H(A) = sum over rules A -> B1..Bn of p (-log2 p + H(B1) + .. + H(Bn))      the entropy of a symbol in bits
    L(A) = sum over rules A -> B1..Bn of p (L(B1) + .. + L(Bn))                its expected number of words

and the probability of a text by the inside algorithm (Baker 1979), which sums over all derivations.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from seqloom.data.schema import Schema
from seqloom.data.synthetic.set import DrawnExample, RandomDraws, Sizes, SyntheticSet

SENTENCES = 3  # per text
START = "Sentence"


class Rule(NamedTuple):
    """A rule: its probability in percent and the symbols that it produces."""

    percent: int
    tokens: tuple[str, ...]


def _rules(text: str) -> tuple[Rule, ...]:
    """Parse rules written as "60 Determiner Noun | 40 Noun"."""
    sides = [side.split() for side in text.split("|")]
    return tuple(Rule(int(side[0]), tuple(side[1:])) for side in sides)


def _numbered(one: str, other: str) -> dict[str, tuple[Rule, ...]]:
    """Return the rules of a noun phrase and its verb for one grammatical number."""
    return {
        f"Phrase{one}": _rules(
            f"45 Determiner{one} Noun{one} | 20 Determiner{one} Likeness Noun{one} | "
            f"20 Determiner{one} Noun{one} Place | 15 Determiner{one} Noun{one} Clause{one}"
        ),
        f"Clause{one}": _rules(f"50 that Verb{one} | 25 that Phrase{one} See{one} | 25 that Phrase{other} See{other}"),
        f"Verb{one}": _rules(f"35 Sing{one} | 20 Sing{one} Manner | 45 See{one} Phrase"),
    }


RULES: dict[str, tuple[Rule, ...]] = {
    START: _rules("50 PhraseOne VerbOne . | 50 PhraseMany VerbMany ."),
    **_numbered("One", "Many"),
    **_numbered("Many", "One"),
    "Phrase": _rules("50 PhraseOne | 50 PhraseMany"),
    "Place": _rules("50 Beside DeterminerOne NounOne | 50 Beside DeterminerMany NounMany"),
    "DeterminerOne": _rules("60 the | 40 a"),
    "DeterminerMany": _rules("60 the | 25 some | 15 two"),
    "NounOne": _rules("25 fox | 20 poet | 15 heron | 15 baker | 10 drum | 10 mill | 5 queen"),
    "NounMany": _rules("25 foxes | 20 poets | 15 herons | 15 bakers | 10 drums | 10 mills | 5 queens"),
    "SingOne": _rules("40 sings | 30 waits | 20 dances | 10 sleeps"),
    "SingMany": _rules("40 sing | 30 wait | 20 dance | 10 sleep"),
    "SeeOne": _rules("40 sees | 30 hears | 20 admires | 10 follows"),
    "SeeMany": _rules("40 see | 30 hear | 20 admire | 10 follow"),
    "Likeness": _rules("40 tall | 30 quiet | 20 brave | 10 golden"),
    "Manner": _rules("50 softly | 30 again | 20 forever"),
    "Beside": _rules("60 near | 40 behind"),
}


class Worth(NamedTuple):
    """The average information and length of a text."""

    bits: float
    words: float

    @property
    def perplexity(self) -> float:
        """The lowest perplexity per word that any model can reach; the end of the text counts as a word."""
        return float(2 ** (self.bits / (self.words + 1)))


def worth() -> Worth:
    """Return the exact mean over all texts; the end adds no bits, because it always follows the third sentence.

    >>> print("{:.3f} bits, {:.3f} words".format(*worth()))
    53.809 bits, 21.804 words
    """
    names = list(RULES)
    uses = np.zeros((len(names), len(names)))  # [A,B] expected number of B in a rule of A
    bits, words = np.zeros(len(names)), np.zeros(len(names))
    for row, name in enumerate(names):
        for percent, tokens in RULES[name]:
            bits[row] -= percent / 100 * math.log2(percent / 100)
            for token in tokens:
                if token in RULES:
                    uses[row, names.index(token)] += percent / 100
                else:
                    words[row] += percent / 100
    solved = np.linalg.solve(np.eye(len(names)) - uses, np.stack([bits, words], axis=1))
    return Worth(*(SENTENCES * float(number) for number in solved[names.index(START)]))


def surprise(text: str) -> float:
    """Return -log2 of a text's probability, in bits; infinite if the grammar cannot produce it.

    >>> surprise("a fox sing . a fox sings . a fox sings .")
    inf
    """
    sentences = [tuple(f"{sentence} .".split()) for sentence in text.removesuffix(" .").split(" . ")]
    chances = [_inside(sentence) for sentence in sentences]
    if len(sentences) != SENTENCES or min(chances) == 0:
        return math.inf
    return -sum(math.log2(chance) for chance in chances)


def _inside(words: tuple[str, ...]) -> float:
    """Return the probability that the start symbol produces exactly these words; there is no left recursion."""

    @cache
    def ends(token: str, start: int) -> dict[int, float]:
        """Return the probability that the symbol produces the words from `start` up to each possible end."""
        if token not in RULES:
            return {start + 1: 1.0} if words[start : start + 1] == (token,) else {}
        total: dict[int, float] = {}
        for percent, tokens in RULES[token]:
            reached = {start: percent / 100}
            for one in tokens:
                reached = onward(reached, one)
            _add(total, reached, 1.0)
        return total

    def onward(reached: dict[int, float], token: str) -> dict[int, float]:
        further: dict[int, float] = {}
        for at, chance in reached.items():
            _add(further, ends(token, at), chance)
        return further

    return ends(START, 0).get(len(words), 0.0)


def _add(total: dict[int, float], more: dict[int, float], weight: float) -> None:
    for end, chance in more.items():
        total[end] = total.get(end, 0.0) + weight * chance


def _grow(draws: RandomDraws, token: str, words: list[str]) -> None:
    if token not in RULES:
        words.append(token)
        return
    for below in _chosen(draws.below(100), RULES[token]):
        _grow(draws, below, words)


def _chosen(hundredth: int, rules: tuple[Rule, ...]) -> tuple[str, ...]:
    for percent, tokens in rules:
        if hundredth < percent:
            return tokens
        hundredth -= percent
    raise AssertionError("the rules of a token make a hundred")


def _draw(draws: RandomDraws) -> DrawnExample:
    words: list[str] = []
    for _ in range(SENTENCES):
        _grow(draws, START, words)
    text = " ".join(words)
    return DrawnExample(text, ((text, None),))


GRAMMAR = SyntheticSet(
    name="grammar",
    schema=Schema("text", "nothing"),
    description="sentences with long-distance verb agreement and a known entropy",
    draw=_draw,
    sizes=Sizes(10_000, 1_000, 1_000),
)
