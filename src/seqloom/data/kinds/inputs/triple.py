"""A text, one that belongs to it, and one that does not: what vectors are learned from."""

from typing import NamedTuple

from seqloom.data.kinds.inputs.pair import PairInput


class TextTriple(NamedTuple):
    """A text, one that belongs to it, and one that does not."""

    anchor: str
    positive: str
    negative: str


class TripleInput(PairInput):
    """Column "input": the tokens of all three, SEPARATORs between. In a batch: Padded tokens [B,T]."""

    name = "triple"
    wanted = "three texts"
    usual = (("anchor", "positive", "negative"), ("query", "positive", "negative"))
    num_columns = 3
    value = TextTriple
