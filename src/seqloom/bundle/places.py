"""Where model folders lie: in a run, as `RUN/model`, or anywhere alone.

Whoever asks for a model may name either folder; whoever has a model may ask for its run.
"""

from pathlib import Path

from seqloom.errors import ConfigError

RUN_CONFIG, MODEL = "config.toml", "model"  # in a run folder


def model_folder(path: str | Path) -> Path:
    """The model folder that is meant: that of a run, or the folder itself; ConfigError if the run has none yet."""
    folder = Path(path)
    if not (folder / RUN_CONFIG).is_file():
        return folder
    if not (folder / MODEL).is_dir():
        raise ConfigError(f"{folder} has no model yet", fix="let training come to its first validation")
    return folder / MODEL


def run_of(folder: Path) -> Path | None:
    """The run that a model folder lies in, if it lies in one."""
    run = folder.parent
    return run if folder.name == MODEL and (run / RUN_CONFIG).is_file() else None
