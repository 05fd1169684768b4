"""The options that say how a model is trained; `train_settings` makes of them what they mean."""

from pathlib import Path
from typing import Annotated, Any

import typer

from seqloom.cli.train_settings import HEADS, OPTIMISERS, POOLINGS, SCHEDULES
from seqloom.config.objectives import OBJECTIVES
from seqloom.recipes.bodies import SIZES

MODEL, LENGTH, BATCHES = "Model", "How long", "Batches"
OPTIMISER, RUN, MACHINE = "Optimiser", "The run folder, and what is seen", "Machine"


def _option(name: str, metavar: str, panel: str, text: str) -> Any:
    return typer.Option(name, metavar=metavar, rich_help_panel=panel, help=text)


def _switch(name: str, panel: str, text: str) -> Any:
    return typer.Option(name, rich_help_panel=panel, help=text)


Data = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="A file, a folder, two files of parallel text, or the name of a set."),
]

Model = Annotated[
    str | None, _option("--model", "NAME", MODEL, "A recipe (see seqloom recipes) or a .toml file; else by the task.")
]
SizeName = Annotated[str | None, _option("--size", "NAME", MODEL, f"One of {', '.join(SIZES)}; else small.")]
Dropout = Annotated[
    float | None,
    _option("--dropout", "RATE", MODEL, "Dropout wherever the recipe has any, 0 for none; else by the recipe."),
]
Smoothing = Annotated[float | None, _option("--smoothing", "RATE", MODEL, "What each true label gives to the others.")]
ClassWeights = Annotated[
    str | None,
    _option("--class-weights", "LIST", MODEL, "How much each label counts: balanced, or numbers such as 1,2.5."),
]
HeadName = Annotated[
    str | None, _option("--head", "KIND", MODEL, f"What a tagger ends in: {' or '.join(HEADS)}; else class.")
]
PoolingName = Annotated[
    str | None,
    _option("--pooling", "NAME", MODEL, f"How a text becomes one vector (embed): {', '.join(POOLINGS)}."),
]
ObjectiveName = Annotated[
    str | None, _option("--objective", "NAME", MODEL, f"What is asked of vectors (embed): {', '.join(OBJECTIVES)}.")
]
RowsAtOnce = Annotated[
    int | None,
    _option("--rows-at-once", "COUNT", MODEL, "Texts computed at a time (embed): the memory of few, the step of all."),
]
LettersName = Annotated[
    str | None,
    _option("--letters", "NAME", MODEL, "What reads the letters of words: cnn, lstm or none; cnn for taggers."),
]
VectorFile = Annotated[
    str | None,
    _option("--vectors", "FILE", MODEL, "Start the vectors of words from this file: GloVe, word2vec or fastText."),
]
VectorWords = Annotated[
    int | None,
    _option("--vector-words", "COUNT", MODEL, "So many of its first words join the vocabulary; else 100,000."),
]
FreezeVectors = Annotated[bool, _switch("--freeze-vectors", MODEL, "The vectors of words stay as they are.")]
Init = Annotated[str | None, _option("--init", "MODEL", MODEL, "Start from the weights of this run or model folder.")]
Freeze = Annotated[
    list[str] | None, _option("--freeze", "PATTERN", MODEL, "Weights that stay, by name: 'encoder.*'; may be repeated.")
]

Epochs = Annotated[
    int | None, _option("--epochs", "COUNT", LENGTH, "Go so many times over the data; else 3 to 60 times, by its size.")
]
Steps = Annotated[int | None, _option("--steps", "COUNT", LENGTH, "Or take so many steps.")]
Symbols = Annotated[int | None, _option("--symbols", "COUNT", LENGTH, "Or read so many symbols.")]
Seconds = Annotated[float | None, _option("--seconds", "COUNT", LENGTH, "Or train for so long.")]
Patience = Annotated[
    int | None,
    _option("--patience", "COUNT", LENGTH, "End after so many validations without a better one; else 5; 0: never."),
]

Batch = Annotated[
    int | None,
    _option("--batch", "SYMBOLS", BATCHES, "Symbols in one step, with padding; else 128 to 8,192, by the data."),
]
Streams = Annotated[
    str | None, _option("--streams", "ROWSxLENGTH", BATCHES, "Or running text in rows whose state is carried (lm).")
]
Packs = Annotated[
    str | None, _option("--packs", "ROWSxLENGTH", BATCHES, "Or whole documents side by side, kept apart (lm).")
]
Pieces = Annotated[
    int | None, _option("--pieces", "COUNT", BATCHES, "Compute each step in so many pieces: less memory, same result.")
]

Rate = Annotated[
    float | None,
    _option("--rate", "NUMBER", OPTIMISER, "The learning rate; else by model and size, 0.001 or so; none for newton."),
]
Optimiser = Annotated[
    str | None,
    _option("--optimiser", "NAME", OPTIMISER, f"One of {', '.join(OPTIMISERS)}; else adamw, and newton for linear."),
]
Momentum = Annotated[float | None, _option("--momentum", "RATE", OPTIMISER, "Of sgd.")]
Decay = Annotated[
    float | None, _option("--decay", "NUMBER", OPTIMISER, "Weight decay; L2 of sgd and adam, decoupled of adamw.")
]
Schedule = Annotated[
    str | None, _option("--schedule", "NAME", OPTIMISER, f"One of {', '.join(SCHEDULES)}; else linear.")
]
WarmUp = Annotated[
    int | None,
    _option("--warm-up", "STEPS", OPTIMISER, "Steps in which the rate rises; else a tenth of all, 100 at most."),
]
Clip = Annotated[
    float | None, _option("--clip", "NORM", OPTIMISER, "The largest norm of a gradient; else 1; 0: no limit.")
]
Average = Annotated[
    float | None, _option("--average", "DECAY", OPTIMISER, "Ship a moving average of the weights, such as 0.999.")
]
AverageLast = Annotated[
    int | None, _option("--average-last", "COUNT", OPTIMISER, "Ship the mean of so many last checkpoints.")
]
SeedNumber = Annotated[int | None, _option("--seed", "NUMBER", OPTIMISER, "Of the first weights, order and dropout.")]

Out = Annotated[
    Path | None, _option("--out", "RUN", RUN, "The run folder; alone, it goes on with the run that is there.")
]
ConfigFile = Annotated[
    Path | None, _option("--config", "FILE", RUN, "Everything from the config.toml of a run, instead of options.")
]
ValidateEvery = Annotated[
    int | None, _option("--validate-every", "STEPS", RUN, "Look at the dev part; else after each epoch.")
]
MetricName = Annotated[
    str | None,
    _option("--metric", "NAME", RUN, "The figure of the dev part that decides what is best; else the task's."),
]
SaveEvery = Annotated[
    int | None, _option("--save-every", "STEPS", RUN, "Write a checkpoint; else after each validation.")
]
Keep = Annotated[
    int | None, _option("--keep", "COUNT", RUN, "Newest checkpoints to keep, beside the shipped one; else 2.")
]
TensorBoard = Annotated[bool, _switch("--tensorboard", RUN, "Also write curves for TensorBoard into the run folder.")]
FindRate = Annotated[bool, _switch("--find-lr", RUN, "Train nothing: try rates from small to large, and draw it.")]
Json = Annotated[bool, _switch("--json", RUN, "Print how it ended as JSON.")]

DeviceName = Annotated[str, _option("--device", "NAME", MACHINE, "auto, cpu, cuda or mps.")]
Precision = Annotated[str, _option("--precision", "NAME", MACHINE, "auto, float32, bf16 or fp16.")]
Compile = Annotated[bool, _switch("--compile", MACHINE, "Compile the model; for batches of one shape.")]
Deterministic = Annotated[
    bool, _switch("--deterministic", MACHINE, "Refuse kernels whose sums depend on the timing of a GPU.")
]
Workers = Annotated[int, _option("--workers", "COUNT", MACHINE, "Threads that make batches ahead of time.")]
Processes = Annotated[int, _option("--processes", "COUNT", MACHINE, "Train in so many processes on this machine.")]
MaxRestarts = Annotated[
    int, _option("--max-restarts", "COUNT", MACHINE, "How often processes that died are started again.")
]
Shard = Annotated[bool, _switch("--shard", MACHINE, "Each process keeps only its part of the weights.")]


def given(context: typer.Context) -> list[str]:
    """The names of the options that were typed."""
    typed = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in typed.items() if getattr(source, "name", "") == "COMMANDLINE"]
