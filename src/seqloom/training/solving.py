"""A run of a linear model that is solved: Newton steps along a path of strengths of L2, from strong to weak.

A step is one Newton step, an epoch one strength, which ends when the gradient is flat. Each strength starts from the
solution of the one before it, and behind each the dev part is looked at, as behind the epochs of any run.

What a step does depends on the weights and on the number of the strength alone. So a checkpoint keeps nothing else, and
a run that goes on repeats its steps bit for bit.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.config.heads import UnmappedHead
from seqloom.config.inputs import TfidfConfig
from seqloom.config.models import AnyModel, SequenceModelConfig
from seqloom.config.training import NewtonConfig, TrainingConfig
from seqloom.data.loader import Loader, Plan, Position, Step
from seqloom.errors import ConfigError
from seqloom.inputs import Tfidf
from seqloom.models import SequenceModel
from seqloom.training.keeping import copy_all, weights_of
from seqloom.training.newton import Place, Point, Problem, Scored, Texts, newton_step
from seqloom.training.session import Session
from seqloom.training.standing import Standing
from seqloom.training.starting import training_texts
from seqloom.training.tallying import Tally
from seqloom.training.update import AnyBatch, LossOf, Update
from seqloom.types import Batch

USUAL, MOST = 4, 100  # steps of a strength: what is guessed, and where it ends although the gradient is not flat


def require_solvable(model: AnyModel, training: TrainingConfig) -> None:
    """Raise ConfigError where Newton steps are asked for and the model is not a linear one of TF-IDF."""
    if not isinstance(training.optimiser, NewtonConfig):
        return
    linear = (
        isinstance(model, SequenceModelConfig)
        and isinstance(model.encoder.input, TfidfConfig)
        and isinstance(model.head, UnmappedHead)
        and (model.encoder.layers, model.pooling) == ((), "sum")
    )
    if not linear:
        raise ConfigError(
            "newton solves linear models of TF-IDF, and this is another one",
            fix="take --model linear, or --optimiser adamw",
        )


class Path:
    """The steps along the strengths: a plan whose epochs end when they are solved, and what loads their steps."""

    def __init__(self, loader: Loader[Any, Any], solver: "Solver") -> None:
        self.solver, self.read = solver, loader.plan
        self.plan: Plan[Any] = self

    def count(self, epoch: int) -> int:
        """How many steps the strength takes; until it is solved, one more than were taken at least."""
        taken = self.solver.taken if self.solver.taken.epoch == epoch else Taken(epoch)
        return taken.steps if taken.solved else max(USUAL, taken.steps + 1)

    def share(self, epoch: int, index: int, rank: int, ranks: int) -> None:
        """Nothing: no step reads a batch of its own."""

    def carried(self, index: int) -> bool:
        """No."""
        return False

    def fingerprint(self) -> str:
        """That of the batches of the training set."""
        return self.read.fingerprint()

    def steps(self, start: Position) -> Iterator[Step[Any]]:
        """The steps from `start` on; at the first one of a strength all texts count as read."""
        epoch, index = start.epoch, start.index
        while True:
            yield Step(epoch, index, self.solver.whole() if index == 0 else None)
            epoch, index = (epoch, index + 1) if index + 1 < self.count(epoch) else (epoch + 1, 0)


class Taken(NamedTuple):
    """How far a strength is."""

    epoch: int
    steps: int = 0
    solved: bool = False


class Solver(Update):
    """Takes the steps of a run that is solved, and keeps all its tensors."""

    def __init__(self, session: Session) -> None:
        config = session.config.training
        assert isinstance(config.optimiser, NewtonConfig), "other steps are those of Update"
        if session.ranks.count > 1:
            raise ConfigError(
                f"newton solves in one process, and there are {session.ranks.count}",
                fix="leave --processes out, or take --optimiser adamw",
            )
        self._session, self._newton = session, config.optimiser
        self._model, self._ranks, self._device = session.model, session.ranks, session.device
        self._loss, self._average, self._carried = LossOf(session.model, session.device), None, None
        linear = cast(SequenceModel, session.model)
        self._source = cast(Tfidf, linear.encoder.input)
        self._scored = Scored(copy.deepcopy(linear.head).to("cpu", torch.float64))
        self._bias = cast(nn.Parameter, linear.head.bias)
        nn.init.zeros_(cast(nn.Parameter, self._scored.head.bias))
        self._texts: Texts | None = None
        self._problem: Problem | None = None
        self._place: Place | None = None
        self.taken = Taken(-1)
        self._told: list[Tally] = []
        session.model.train()

    def whole(self) -> AnyBatch:
        """All texts as one batch, of which only the ids, the targets and the number of symbols are there."""
        texts = self._read()
        return Batch(torch.empty(texts.symbols, device="meta"), texts.targets, texts.ids)

    def step(
        self, batch: AnyBatch | None, *, carried: bool, standing: Standing, rate: float, stop: bool = False
    ) -> None:
        """Nothing; the weights have taken one Newton step, or none where the gradient is flat already."""
        place = self._at(self._newton.strengths[standing.epoch])
        assert self._problem is not None
        flat = place.gradient.largest() <= self._newton.tolerance
        after = place if flat else newton_step(self._problem, place)
        steps = standing.index + 1
        solved = after is place or after.gradient.largest() <= self._newton.tolerance or steps == MOST
        self.taken, self._place = Taken(standing.epoch, steps, solved), after
        self._put(after.point)
        symbols = self._read().symbols if standing.index == 0 else 0
        self._told.append(_tally(place, symbols, stop))

    def is_done(self, standing: Standing) -> bool:
        """Whether all strengths are solved."""
        return standing.epoch >= len(self._newton.strengths)

    def read(self) -> Tally:
        """What happened since the last call."""
        tallies, self._told = self._told, []
        summed = {name: sum(getattr(one, name) for one in tallies) for name in Tally._fields}
        last = {"largest": max((one.largest for one in tallies), default=0.0), "scale": 0.0}
        return Tally(**{**summed, **last, "stop": any(one.stop for one in tallies)})

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The weights: nothing else decides how the run goes on."""
        return {"model": weights_of(self._model), "optimiser": {}}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Mapping[str, Tensor]], standing: Standing) -> None:
        """Nothing; the run is where it was when these tensors and this standing were kept."""
        copy_all("model", self.tensors()["model"], tensors.get("model", {}))

    def _read(self) -> Texts:
        """The training set; not read before the first step, when a run that goes on has its own idf."""
        if self._texts is None:
            session = self._session
            batches = training_texts(session.task, session.prepared, session.config.training.feed)
            self._texts = Texts.of(self._source, batches)
        return self._texts

    def _at(self, strength: float) -> Place:
        """What is known of a strength at the present weights."""
        if self._place is None or self._problem is None or self._problem.strength != strength:
            texts = self._read()
            self._problem = Problem(self._session.task, self._scored, texts, strength)
            weights = self._source.table.detach().cpu()[texts.rows]
            self._place = self._problem.at(Point(weights, self._bias.detach().cpu().clone()))
        return self._place

    @torch.no_grad()
    def _put(self, point: Point) -> None:
        table = self._source.table
        table[self._read().rows.to(table.device)] = point.weights.to(table.device)
        self._bias.copy_(point.bias)


def _tally(place: Place, symbols: int, stop: bool) -> Tally:
    """What a step from a place tells, rounded to 24 bits: sums of such do not depend on when they are read."""
    norm = float(np.float32(place.gradient.dot(place.gradient) ** 0.5))
    return Tally(
        steps=1,
        loss=float(np.float32(place.loss)),
        weight=1.0,
        norm=norm,
        largest=norm,
        clipped=0,
        skipped=0,
        not_finite=0,
        elements=symbols,
        symbols=symbols,
        stop=stop,
    )
