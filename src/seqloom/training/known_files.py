"""The files of a run by the names that its folder knows, so that it goes on however its data is spelled now.

A name is what was typed when the run began. A file that is typed in another way, or lies elsewhere by now, has the name
of the one that the run knows if it is the same file or has the same sums. So the run stays the same one to the byte.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from seqloom.config.data import DataConfig
from seqloom.config.training import RunConfig
from seqloom.data.run_files import located, names_of, with_known_starts
from seqloom.data.schema import PARTS
from seqloom.training.folder import RunFolder
from seqloom.training.resolving import Resolved

Sums = Mapping[str, Any]  # of files, by their names


def with_known_names(folder: RunFolder, resolved: Resolved) -> Resolved:
    """The run with its files by the names of the run that is in the folder, if one is, and with the place of each."""
    config = resolved.config
    if not folder.has_begun():
        return resolved._replace(files=_data_files(config, config) | _starts(config, config))
    before = folder.config()
    own = located(folder.path, before).config
    known = names_of(folder.path, before.data, own.data, config.data)
    facts = msgspec.structs.replace(resolved.facts, fingerprints=named_sums(resolved.facts.fingerprints, known))
    now = with_known_starts(msgspec.structs.replace(config, data=named(config.data, known)), before, own)
    files = _data_files(now, config) | _starts(now, config) | _starts(before, own)
    return resolved._replace(config=now, facts=facts, files=files)


def _data_files(names: RunConfig, places: RunConfig) -> dict[str, str]:
    """Where the data lies: the same files twice, by name and by place."""
    pairs = (zip(getattr(names.data, part), getattr(places.data, part), strict=True) for part in PARTS)
    return {name: place for pair in pairs for name, place in pair}


def _starts(names: RunConfig, places: RunConfig) -> dict[str, str]:
    """Where that lies which a run starts from: another model, a file of vectors."""
    found = {names.training.init: places.training.init} if names.training.init and places.training.init else {}
    if names.encoding.vectors is not None and places.encoding.vectors is not None:
        found[names.encoding.vectors.path] = places.encoding.vectors.path
    return found


def named(data: DataConfig, names: Mapping[str, str]) -> DataConfig:
    """The same data, its files by other names."""
    parts = {part: tuple(names.get(path, path) for path in getattr(data, part)) for part in PARTS}
    return msgspec.structs.replace(data, **parts)


def named_sums(sums: Sums, names: Mapping[str, str]) -> dict[str, Any]:
    """The same sums, their files by other names: also those inside a folder, and pictures that a table names.

    >>> named_sums({"/data/a.csv": 1, "/data/pictures/1.png": 2}, {"/data/a.csv": "a.csv"})
    {'a.csv': 1, 'pictures/1.png': 2}
    """
    return {_other_name(path, names): value for path, value in sums.items()}


def _other_name(path: str, names: Mapping[str, str]) -> str:
    spelled = {str(Path(root)): str(Path(name)) for root, name in names.items()}  # ./a.csv is summed as a.csv
    longest_first = sorted(spelled.items(), key=lambda one: -len(one[0]))
    for root, name in longest_first:
        if path == root or path.startswith(f"{root}/"):
            return name + path[len(root) :]
    for root, name in longest_first:
        if Path(path).is_relative_to(Path(root).parent):
            return str(Path(name).parent / Path(path).relative_to(Path(root).parent))
    return path
