"""Which kernel computes each layer of a model on this machine, and why faster ones cannot.

One batch of the training set is read twice, as in training and as in prediction, while `nn.ops.kernels.observing` tells
the kernel of every call. Layers are those modules inside which the call was made.
"""

import sys
from types import FrameType
from typing import Any, Literal

import msgspec
import torch
from torch import nn

from seqloom.inference.model import LoadedModel
from seqloom.nn.ops.kernels import Choice, observing
from seqloom.nn.types import Batch, on_device
from seqloom.report.document import Document, DocumentBlock, Heading, Paragraph, Paragraphs, Shown, TableBlock
from seqloom.report.numbers import counted
from seqloom.tasks.evaluation import answering

Phase = Literal["training", "prediction"]
# What a kernel is, by operator and name.
KERNELS = {
    ("attention", "edges"): "one score for each edge of the graph",
    ("attention", "regions"): "torch's kernel for one block of queries and the keys in its reach after another",
    ("attention", "additive"): "Triton: no score or tanh is stored",
    ("attention", "single"): "Triton: one query for each row, in generation with CUDA graphs; reads only keys in sight",
    ("attention", "tiles"): "Triton: reads only the keys in reach; memory grows with the length, not with its square",
    ("attention", "slopes"): "torch's scaled_dot_product_attention, with ALiBi in extra dimensions of the keys",
    ("attention", "blocked"): "a block of queries at a time; memory grows with the length, not with its square",
    ("attention", "sdpa"): "torch's scaled_dot_product_attention",
    ("attention", "plain"): "the definition, with the complete matrix of weights: slow and large for long inputs",
    ("linear_attention", "sums"): "sums over chunks; time and memory grow with the length",
    ("linear_attention", "plain"): "the definition, with the complete matrix of weights",
    ("recurrence", "scan"): "one product for all inputs, gradients in closed form",
    ("recurrence", "fused"): "torch's kernel: cuDNN on a GPU, oneDNN for an LSTM on the CPU",
    ("recurrence", "plain"): "the definition, one element at a time: slow",
    ("linear", "onednn"): "oneDNN, because MKL leaves half of this CPU unused; other layers use torch's kernel",
    ("convolution", "windows"): "one matrix product over the vectors around each position",
    ("convolution", "fused"): "torch's kernel: cuDNN on a GPU, oneDNN on the CPU",
    ("convolution", "plain"): "the definition, one tap at a time: slow",
    ("cross_entropy", "fused"): "Triton: the scores of some elements over the vocabulary at a time, in two passes",
    ("cross_entropy", "aligned"): "all scores over the vocabulary, in a form that a compiler makes fast",
    ("cross_entropy", "chunked"): "the scores of some elements over the vocabulary at a time",
    ("cross_entropy", "plain"): "the definition, with all scores over the vocabulary",
}


class LayerKernel(msgspec.Struct, frozen=True):
    """The kernel of an operator in one layer."""

    phase: Phase
    layer: str  # its path in the model; several layers that agree share one entry
    operator: str
    kernel: str
    refused: dict[str, str]  # kernels that are preferred to it, with the reason why they were not used

    @property
    def about(self) -> str:
        """What the kernel is."""
        return KERNELS.get((self.operator, self.kernel), "")


class KernelReport(msgspec.Struct, Shown, frozen=True):
    """The kernels of a model on a machine."""

    name: str
    device: str
    layers: tuple[LayerKernel, ...]

    def document(self) -> Document:
        """The kernels as tables, one for training and one for prediction."""
        blocks: list[DocumentBlock] = [Paragraph(f"Kernels on {self.device}, for the first batch of the training set.")]
        for phase in ("training", "prediction"):
            own = [one for one in self.layers if one.phase == phase]
            rows = [
                (
                    _brief(paths),
                    operator.replace("_", " "),
                    kernel,
                    Paragraphs(KERNELS.get((operator, kernel), ""), *why),
                )
                for (operator, kernel, why), paths in _alike(own).items()
            ]
            blocks += [Heading(phase.capitalize()), TableBlock(("layer", "operator", "kernel", "why"), rows)]
        if not self.layers:
            blocks.append(Paragraph("No layer of this model has a choice of kernels: it uses torch's own operators."))
        return Document(f"Kernels of {self.name}", blocks)


def _alike(layers: list[LayerKernel]) -> dict[tuple[str, str, tuple[str, ...]], list[str]]:
    """The layers with the same kernel for the same reasons."""
    found: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for one in layers:
        why = tuple(f"{name}: {reason}" for name, reason in one.refused.items())
        found.setdefault((one.operator, one.kernel, why), []).append(one.layer)
    return found


def _brief(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {counted(len(paths) - 1, 'more layer')}"


def explain_kernels(loaded: LoadedModel, batch: Batch[Any, Any], inputs: Any, device: str) -> KernelReport:
    """Compute the loss of a batch and its predictions, and report the kernels.

    Args:
        loaded: the model.
        batch: a batch of the training set.
        inputs: its inputs as in prediction.
        device: the name of the device.
    """
    found: dict[tuple[Phase, str, str, str], LayerKernel] = {}
    model, was_training = loaded.model, loaded.model.training
    names = {module: name for name, module in model.named_modules()}

    def keep(phase: Phase, operator: str, choice: Choice) -> None:
        path = _layer(names)
        one = LayerKernel(phase, path, operator, choice.kernel, dict(choice.refused))
        found.setdefault((phase, path, operator, choice.kernel), one)

    with torch.random.fork_rng():
        try:
            model.train()
            with torch.enable_grad(), observing(lambda *choice: keep("training", *choice)):
                loaded.task.loss(model, on_device(batch, loaded.device), None)
        finally:
            model.train(was_training)
        with answering(model), observing(lambda *choice: keep("prediction", *choice)):
            list(loaded.task.predict(model, on_device(inputs, loaded.device)))
    return KernelReport(loaded.folder.name if loaded.folder else loaded.path.name, device, tuple(found.values()))


def _layer(names: dict[nn.Module, str]) -> str:
    """The path of the innermost module that is being computed.

    Modules are also called by other methods than `forward`, such as `step`, so hooks would miss them.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, nn.Module) and caller in names:
            return names[caller]
        frame = frame.f_back
    return ""
