"""The best tags that a scheme allows, whatever head gave the scores.

A head of kind `crf` has learned scores of moves, one of kind `class` has none: then every legal move scores zero. In
both, an answer is the path with the highest score among the legal ones (Viterbi 1967), so no answer ever holds an I-PER
without its beginning. Plain tags, such as parts of speech, mark no spans: any may follow any, and each is the best of
its own place.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.config.heads import Scheme
from seqloom.data.tags import form_fault
from seqloom.heads import CrfHead, Head
from seqloom.operators import crf
from seqloom.packing import by_document
from seqloom.types import Padded


def scheme_of(labels: tuple[str, ...]) -> Scheme:
    """The scheme of the tags that data holds once it is read: iob1 is bio by then, bilou is bioes.

    >>> scheme_of(("O", "B-PER", "I-PER")), scheme_of(("O", "S-PER")), scheme_of(("NOUN", "VERB"))
    ('bio', 'bioes', 'none')
    """
    if any(form_fault(label) is not None for label in labels):
        return "none"
    return "bioes" if any(label[0] in "ES" for label in labels) else "bio"


class Chain(NamedTuple):
    """Which tags may begin, follow each other, and end."""

    scheme: Scheme
    starts: Tensor  # [K] bool; all three are empty where nothing is restricted
    moves: Tensor  # [K,K] bool, from, to
    ends: Tensor  # [K] bool

    @classmethod
    def of(cls, labels: tuple[str, ...]) -> "Chain":
        """The chain of these tags; ConfigError where no tag of theirs may stand alone."""
        scheme = scheme_of(labels)
        legal = (torch.empty(0),) * 3 if scheme == "none" else crf.legal_transitions(labels, scheme)
        return cls(scheme, *legal)

    def best(self, head: Head, x: Padded) -> Tensor:
        """[B,T] the best legal tags, given the vectors that the head reads; zero in the padding."""
        scores: Padded = head(x)
        if isinstance(head, CrfHead):
            moves = self._within(head.transitions)
            return by_document(lambda rows: rows.with_values(_best(rows, moves)), scores).values
        likeliest = scores.with_values(scores.values.argmax(dim=-1))
        if self.scheme == "none":
            return likeliest.values
        free = self._within(_free(scores.values))
        return by_document(lambda rows: rows.with_values(_corrected(rows, free)), scores).values

    def transitions(self, head: Head, scores: Tensor) -> crf.Transitions:
        """What moves score, nothing where the head is no chain, and which of them the scheme allows."""
        return self._within(head.transitions if isinstance(head, CrfHead) else _free(scores))

    def _within(self, moves: crf.Transitions) -> crf.Transitions:
        """The same scores of moves, of which those that the scheme forbids are illegal."""
        if self.scheme == "none":
            return moves
        device = moves.start.device
        starts, between, ends = (legal.to(device) for legal in (self.starts, self.moves, self.ends))
        return moves._replace(legal_start=starts, legal_between=between, legal_end=ends)


def _free(scores: Tensor) -> crf.Transitions:
    """Moves that score nothing, all of them legal."""
    count = scores.shape[-1]
    one, square = scores.new_zeros(count), scores.new_zeros(count, count)
    return crf.Transitions(one, square, one, one == 0, square == 0, one == 0)


def _best(scores: Padded, moves: crf.Transitions) -> Tensor:
    return crf.viterbi(scores.values, scores.lengths, moves)[0]


def _corrected(scores: Padded, free: crf.Transitions) -> Tensor:
    """[B,T] the likeliest tags; rows where they break the scheme have the best path instead.

    Where the likeliest tags are a legal path they are the best one, so most rows need no search.
    """
    tags = scores.with_values(scores.values.argmax(dim=-1)).values
    broken = crf.forbidden(tags, scores.lengths, free).nonzero().squeeze(1)
    if len(broken):
        tags[broken] = _best(scores.select(broken), free)
    return tags
