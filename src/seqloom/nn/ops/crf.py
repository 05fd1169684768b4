"""Linear-chain conditional random field: the probability of a tag sequence, and the best sequence.

A path y of tags through a sequence of T elements has the score

    S(y) = start[y_1] + sum_t scores[t, y_t] + sum_{t>1} between[y_{t-1}, y_t] + end[y_T]

and the probability exp(S(y)) / Z, where Z sums exp(S) over all paths (Lafferty et al. 2001; as a tagger's last layer,
Collobert et al. 2011). Z needs no enumeration: with alpha_t[j] the log of the sum over all paths that end in j at t,

    alpha_t[j] = scores[t, j] + log sum_i exp(alpha_{t-1}[i] + between[i, j])

Some transitions can be declared illegal (no I-PER after B-LOC): a path with one has probability zero and is never the
best. A row of length 0 has one path, the empty one: probability 1, score 0. Padding is removed before anything else.

`log_likelihood` is the plain loop with autograd: the specification. `fast_log_likelihood` has the gradient in closed
form: the observed counts of tags and transitions minus the expected ones.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.config.heads import Scheme
from seqloom.errors import ConfigError, KernelError
from seqloom.nn.ops import crf_products

# The score of an illegal transition in a sum of exponentials. Not -inf: the logsumexp of an unreachable tag would be
# over -inf only, and its gradient would be NaN. This is finite, and next to a legal path its exponential is exactly
# zero.
_IMPOSSIBLE = -1e30


class Transitions(NamedTuple):
    """The scores of starts, transitions and ends, and which are legal; there must be a legal path."""

    start: Tensor  # [K]
    between: Tensor  # [K,K] from, to
    end: Tensor  # [K]
    legal_start: Tensor  # [K] bool
    legal_between: Tensor  # [K,K] bool
    legal_end: Tensor  # [K] bool

    def filled(self, illegal: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """Return start, between and end with `illegal` in place of the scores of illegal transitions."""
        moves, legal = self[:3], self[3:]
        start, between, end = (x.to(dtype).masked_fill(~ok, illegal) for x, ok in zip(moves, legal, strict=True))
        return start, between, end


def log_likelihood(scores: Tensor, tags: Tensor, lengths: Tensor, transitions: Transitions) -> Tensor:
    """[B] log p(tags) = S(tags) - log Z, from scores [B,T,K], tags [B,T] and lengths [B].

    >>> free = torch.ones(2, dtype=torch.bool)
    >>> even = Transitions(torch.zeros(2), torch.zeros(2, 2), torch.zeros(2), free, free.expand(2, 2), free)
    >>> log_likelihood(torch.zeros(1, 3, 2), torch.tensor([[0, 1, 1]]), torch.tensor([3]), even).exp()  # one of 2^3
    tensor([0.1250])
    """
    return path_score(scores, tags, lengths, transitions) - log_partition(scores, lengths, transitions)


def fast_log_likelihood(scores: Tensor, tags: Tensor, lengths: Tensor, transitions: Transitions) -> Tensor:
    """The same as `log_likelihood`; its gradient is the observed counts of tags and moves minus the expected ones."""
    return path_score(scores, tags, lengths, transitions) - fast_log_partition(scores, lengths, transitions)


def path_score(scores: Tensor, tags: Tensor, lengths: Tensor, transitions: Transitions) -> Tensor:
    """[B] S(tags)."""
    scores, valid = _without_padding(scores, lengths)
    if scores.shape[1] == 0:
        return scores.sum(dim=(1, 2))
    start, between, end = transitions.filled(_IMPOSSIBLE, scores.dtype)
    tags = tags.masked_fill(~valid, 0)
    last = tags.gather(1, _last(lengths)[:, None]).squeeze(1)  # [B]
    elements = scores.gather(2, tags[:, :, None]).squeeze(2).sum(dim=1)
    moves = between[tags[:, :-1], tags[:, 1:]].masked_fill(~valid[:, 1:], 0).sum(dim=1)
    return (start[tags[:, 0]] + elements + moves + end[last]).masked_fill(lengths == 0, 0)


def forbidden(tags: Tensor, lengths: Tensor, transitions: Transitions) -> Tensor:
    """Return whether each tag sequence has an illegal start, transition or end, [B]."""
    rows, time = torch.arange(len(tags), device=tags.device), tags.shape[1]
    if time == 0:
        return torch.zeros_like(lengths, dtype=torch.bool)
    real = torch.arange(time, device=tags.device) < lengths[:, None]
    tags = tags.masked_fill(~real, 0)
    moves = ~transitions.legal_between[tags[:, :-1], tags[:, 1:]] & real[:, 1:]
    ends = ~transitions.legal_start[tags[:, 0]] | ~transitions.legal_end[tags[rows, _last(lengths)]]
    return moves.any(dim=1) | (ends & (lengths > 0))


def log_partition(scores: Tensor, lengths: Tensor, transitions: Transitions) -> Tensor:
    """[B] log Z, the log of the sum of exp(S) over all legal paths."""
    scores, valid = _without_padding(scores, lengths)
    if scores.shape[1] == 0:
        return scores.sum(dim=(1, 2))
    start, between, end = transitions.filled(_IMPOSSIBLE, scores.dtype)
    alpha = start + scores[:, 0]  # [B,K]
    for t in range(1, scores.shape[1]):
        moved = scores[:, t] + torch.logsumexp(alpha[:, :, None] + between, dim=1)
        alpha = torch.where(valid[:, t, None], moved, alpha)
    return torch.logsumexp(alpha + end, dim=1).masked_fill(lengths == 0, 0)


def fast_log_partition(scores: Tensor, lengths: Tensor, transitions: Transitions) -> Tensor:
    """The same as `log_partition`, with the gradient in closed form."""
    scores, _ = _without_padding(scores, lengths)
    if scores.shape[1] == 0:
        return scores.sum(dim=(1, 2))
    moves = transitions.filled(_IMPOSSIBLE, scores.dtype)
    log_z: Tensor = _LogPartition.apply(scores, *moves, lengths)  # type: ignore[no-untyped-call]
    return log_z


@torch.no_grad()
def marginals(scores: Tensor, lengths: Tensor, transitions: Transitions) -> Tensor:
    """[B,T,K] the probability of each tag at each element, zero in the padding: the gradient of log Z by the scores."""
    scores, _ = _without_padding(scores, lengths)
    if scores.shape[1] == 0:
        return scores
    start, between, end = transitions.filled(_IMPOSSIBLE, scores.dtype)
    _, messages = _forward(scores, start, between, end, lengths)
    return _backward(messages, lengths, torch.ones_like(lengths, dtype=scores.dtype))[0]


@torch.no_grad()
def viterbi(scores: Tensor, lengths: Tensor, transitions: Transitions) -> tuple[Tensor, Tensor]:
    """Return the best legal path [B,T], zero in the padding, and its score [B] (Viterbi 1967).

    best_t[j] = scores[t, j] + max_i (best_{t-1}[i] + between[i, j]); the best i is stored for the backtrace.
    """
    scores, valid = _without_padding(scores, lengths)
    if scores.shape[1] == 0:
        return lengths.new_zeros(scores.shape[:2]), scores.sum(dim=(1, 2))
    # A maximum has no gradient that NaN could spoil, so -inf is exact here: no score outweighs an illegal transition.
    start, between, end = transitions.filled(-torch.inf, scores.dtype)
    best = start + scores[:, 0]  # [B,K]
    origins = []
    for t in range(1, scores.shape[1]):
        top, origin = (best[:, :, None] + between).max(dim=1)  # [B,K] over the tags moved from
        best = torch.where(valid[:, t, None], scores[:, t] + top, best)
        origins.append(origin)
    score, tag = (best + end).max(dim=1)  # [B]
    path = [tag]
    for t in range(scores.shape[1] - 1, 0, -1):
        # In the padding the last tag is repeated until its own element is reached.
        tag = torch.where(valid[:, t], origins[t - 1].gather(1, tag[:, None]).squeeze(1), tag)
        path.append(tag)
    tags = torch.stack(path[::-1], dim=1).masked_fill(~valid, 0)
    return tags, score.masked_fill(lengths == 0, 0)


class SpanScore(NamedTuple):
    """Elements start..stop with their tags, and the tags that would make the span longer."""

    start: int
    stop: int
    tags: tuple[int, ...]
    longer: tuple[int, ...]


@torch.no_grad()
def span_probabilities(
    scores: Tensor, lengths: Tensor, transitions: Transitions, spans: Sequence[Sequence[SpanScore]]
) -> list[list[float]]:
    """The probability of exactly each span of each row, over all paths through scores [B,T,K].

        P(tags y_s..y_e, and no tag at e + 1 that continues them) = Z of the paths that do so / Z of all paths

    The forward and backward sums are computed once for all spans.
    """
    chosen = [row for row, some in enumerate(spans) if some]
    found: list[list[float]] = [[] for _ in spans]
    if not chosen:
        return found
    rows = torch.tensor(chosen, device=scores.device)
    times = lengths[rows]
    # In float64, because these are differences of sums over thousands of elements.
    scores, _ = _without_padding(scores[rows].double(), times)
    start, between, end = transitions.filled(_IMPOSSIBLE, scores.dtype)
    # Backward is forward through the reversed rows, so both are one loop.
    places = torch.arange(scores.shape[1], device=scores.device)
    order = (times[:, None] - 1 - places).clamp(min=0)[:, :, None].expand_as(scores)  # [B,T,K]
    ways = torch.cat([scores, scores.gather(1, order)])  # [2B,T,K]
    begins = torch.cat([start.expand(len(rows), -1), end.expand(len(rows), -1)])
    moves = torch.cat([between.expand(len(rows), -1, -1), between.T.expand(len(rows), -1, -1)])
    forward, backward = _sums(ways, begins, moves).chunk(2)
    backward = backward.gather(1, order)  # of the paths from an element on, with its own score
    last = forward.gather(1, (times - 1)[:, None, None].expand(-1, 1, scores.shape[2])).squeeze(1)
    every = torch.logsumexp(last + end, dim=1).tolist()
    scores, forward, backward, between, end = (one.cpu() for one in (scores, forward, backward, between, end))
    for at, row in enumerate(chosen):
        parts = (scores[at, : int(lengths[row])], between, forward[at], backward[at], end)
        found[row] = [min(1.0, math.exp(one - every[at])) for one in _inside(*parts, spans[row]).tolist()]
    return found


def _sums(scores: Tensor, start: Tensor, between: Tensor) -> Tensor:
    """[B,T,K] log of the sums over all paths to each tag; elements past the length are ignored by the caller."""
    elements = scores.transpose(0, 1).contiguous()  # [T,B,K]
    sums = torch.empty_like(elements)
    torch.add(start, elements[0], out=sums[0])
    moved = between.transpose(1, 2).contiguous()  # [B,K,K] to j, from i
    for before, after, element in zip(sums, sums[1:], elements[1:], strict=False):
        torch.logsumexp(before[:, None, :] + moved, dim=2, out=after)
        after.add_(element)
    return sums.transpose(0, 1)


def _inside(
    scores: Tensor, between: Tensor, before: Tensor, behind: Tensor, end: Tensor, spans: Sequence[SpanScore]
) -> Tensor:
    """log of the sums over all paths with exactly each of these spans."""
    firsts, lasts = torch.tensor([(span.tags[0], span.tags[-1]) for span in spans]).T
    starts, stops = torch.tensor([(span.start, span.stop) for span in spans]).T
    way = before[starts, firsts]
    steps = [
        (number, span.start + place, span.tags[place - 1], span.tags[place])
        for number, span in enumerate(spans)
        for place in range(1, len(span.tags))
    ]
    if steps:
        numbers, places, origins, tags = torch.tensor(steps).T
        way.index_add_(0, numbers, between[origins, tags] + scores[places, tags])
    is_last = stops == len(scores)
    following = between[lasts] + behind[stops.clamp(max=len(scores) - 1)]  # [N,K]
    longer = [(number, tag) for number, span in enumerate(spans) for tag in span.longer]
    if longer:
        numbers, tags = torch.tensor(longer).T
        following[numbers, tags] = _IMPOSSIBLE
    return way + torch.where(is_last, end[lasts], torch.logsumexp(following, dim=1))


class _Messages(NamedTuple):
    """Values saved for the backward pass; the batch is the last axis, where memory is contiguous."""

    ways: Tensor  # [T-1,K,K,B] from i to j: the share of i in the sum for alpha[j]
    final: Tensor  # [K,B] the probability of each last tag; zero for rows of length 0


def _forward(scores: Tensor, start: Tensor, between: Tensor, end: Tensor, lengths: Tensor) -> tuple[Tensor, _Messages]:
    """Return log Z [B] and the messages.

    The maximum of alpha is subtracted at every step and summed separately, so alpha stays near zero and loses neither
    range nor precision. (A recursion over probabilities would be faster, but it underflows when the only legal path is
    an unlikely one.) Elements past the length are computed too, from zero scores, and ignored.
    """
    B, T, K = scores.shape
    elements = scores.permute(1, 2, 0).contiguous()  # [T,K,B]
    moves = between[:, :, None].expand(K, K, B).contiguous()
    ways = scores.new_empty(T - 1, K, K, B)
    alphas, peaks = torch.empty_like(elements), scores.new_empty(T - 1, B)
    alpha = torch.add(start[:, None], elements[0], out=alphas[0])
    for element, following, peak, way in zip(elements[1:], alphas[1:], peaks, ways, strict=True):
        torch.amax(alpha, dim=0, out=peak)
        arriving = (alpha - peak)[:, None] + moves  # [K,K,B]
        torch.softmax(arriving, dim=0, out=way)
        # The largest share of a sum is exp(largest - logsumexp) and at least 1/K, so its logarithm gives the logsumexp.
        log_sum = arriving.amax(dim=0).sub_(way.amax(dim=0).log_())  # [K,B]
        alpha = torch.add(log_sum, element, out=following)
    last = _last(lengths)
    before = torch.arange(T - 1, device=scores.device)[:, None] < last  # [T-1,B] the steps that led to the last tag
    stopped = alphas[last, :, torch.arange(B, device=scores.device)] + end  # [B,K]
    log_z = stopped.logsumexp(dim=1) + peaks.masked_fill(~before, 0).sum(dim=0)
    final = stopped.softmax(dim=1).masked_fill(lengths[:, None] == 0, 0)
    return log_z.masked_fill(lengths == 0, 0), _Messages(ways, final.T.contiguous())


def _backward(messages: _Messages, lengths: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the expected counts of tags [B,T,K], starts [K], moves [K,K] and ends [K], weighted by row.

    By Bayes' rule, p(i at t-1 | j at t) is the share of i in the sum for alpha_t[j]. So backward from the last tag,
    p(i, j) = p(i | j) p(j) and p(i) = sum_j p(i, j). No difference of large logarithms is needed.
    """
    ways, final = messages
    K, B = final.shape
    counts = final.new_zeros(len(ways) + 1, K, B)
    final = final * weights
    counts[_last(lengths), :, torch.arange(B, device=final.device)] = final.T
    pairs = final.new_zeros(K, K, B)
    for way, before, after in reversed(list(zip(ways, counts[:-1], counts[1:], strict=True))):
        pair = way * after  # [K,K,B]
        pairs += pair
        before += pair.sum(dim=1)
    return counts.permute(2, 0, 1), counts[0].sum(dim=1), pairs.sum(dim=2), final.sum(dim=1)


class _LogPartition(torch.autograd.Function):
    """log Z with its gradient, the expected counts."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, start: Tensor, between: Tensor, end: Tensor, lengths: Tensor) -> Tensor:
        moves = (start, between, end)
        by_products = scores.device.type == "cpu" and len(start) >= crf_products.MANY
        products = crf_products.summed(scores, *moves, lengths, _IMPOSSIBLE) if by_products else None
        log_z, messages = products or _forward(scores, *moves, lengths)
        ctx.by_products = products is not None
        ctx.save_for_backward(*messages, lengths)
        return log_z.to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph: autograd would treat the messages as constants
            raise KernelError("fast_log_likelihood has no second derivative", fix="use log_likelihood")
        *messages, lengths = ctx.saved_tensors
        if ctx.by_products:
            found = crf_products.counts(crf_products.Products(*messages), lengths, upstream)
            return (*(one.to(upstream.dtype) for one in found), None)
        return (*_backward(_Messages(*messages), lengths, upstream), None)


def _without_padding(scores: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Scores in float32 or wider, zero in the padding, and [B,T] true where an element is real."""
    valid = torch.arange(scores.shape[1], device=scores.device) < lengths[:, None]
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return scores.masked_fill(~valid[:, :, None], 0), valid


def _last(lengths: Tensor) -> Tensor:
    return (lengths - 1).clamp(min=0)


def legal_transitions(labels: Sequence[str], scheme: Scheme) -> tuple[Tensor, Tensor, Tensor]:
    """Return the legal starts [K], moves [K,K] (from, to) and ends [K] among labels such as O, B-PER and I-PER.

    bio: I-X continues a B-X or I-X; the others may be anywhere (Ramshaw and Marcus 1995, in the form called IOB2).
    bioes: after B-X and I-X a span is open that I-X or E-X must continue; O, B-X and S-X need no open span.
    The positions before the start and after the end count as O.

    >>> starts, moves, ends = legal_transitions(["O", "B-PER", "I-PER"], "bio")
    >>> starts.tolist(), moves[0].tolist(), ends.tolist()
    ([True, True, False], [True, True, False], [True, True, True])
    """
    if scheme == "none":
        anywhere = torch.ones(len(labels), dtype=torch.bool)
        return anywhere, anywhere.repeat(len(labels), 1), anywhere.clone()
    table = _may_follow([("O", ""), *(_parts(label, scheme) for label in labels)], scheme)  # [1+K,1+K]
    starts, moves, ends = table[0, 1:].clone(), table[1:, 1:].clone(), table[1:, 0].clone()
    if not bool((starts & ends).any()):
        problem = f"in the scheme '{scheme}' none of the labels {list(labels)} is allowed in a sequence of one element"
        raise ConfigError(problem, fix="add the label 'O', or choose the scheme 'none'")
    return starts, moves, ends


def _parts(label: str, scheme: Scheme) -> tuple[str, str]:
    """Return the position and the type of a label: B-PER is B and PER, O is O and an empty type."""
    positions = ["B", "I"] if scheme == "bio" else ["B", "I", "E", "S"]
    position, _, kind = label.partition("-")
    if label == "O" or (position in positions and kind):
        return position, kind
    expected = ", ".join(f"{position}-TYPE" for position in positions)
    problem = f"the label '{label}' does not fit the scheme '{scheme}', which expects O, {expected}"
    raise ConfigError(problem, fix="rename the label, or choose the scheme 'none'")


def _may_follow(parts: Sequence[tuple[str, str]], scheme: Scheme) -> Tensor:
    """Return whether the second of two labels, given by position and type, may follow the first, [N,N]."""
    kinds = {kind: number for number, (_, kind) in enumerate(parts)}
    types = torch.tensor([kinds[kind] for _, kind in parts])
    opens, continues = (torch.tensor([letter in some for letter, _ in parts]) for some in ("BI", "IE"))
    goes_on = opens[:, None] & (types[:, None] == types)
    begins = torch.ones_like(goes_on) if scheme == "bio" else ~opens[:, None].expand_as(goes_on)
    return torch.where(continues, goes_on, begins)
