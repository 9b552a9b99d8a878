"""The paths of a run: its folder, its text files, and its tokenizer, checked without importing torch.

- `inlayer train` checks them first, so a wrong path is reported immediately; Run.create also checks them
- paths in a config are absolute, so a run can be resumed from any folder
- see also: the run (resumable_run.py), the settings (config.py)
Tested in tests/training/test_resumable_run.py and tests/training/test_cli.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from inlayer.errors import CheckpointError, InputError
from inlayer.files import check_path, format_path, path_kind
from inlayer.render.numbers import pluralize
from inlayer.tokenizers.open import find_file
from inlayer.training.config import MIN_BLOCK_SIZE, TrainConfig, config_from_json
from inlayer.training.corpus import read_chunks

CONFIG = "config.json"


def check_new_run(config: TrainConfig) -> Path:
    """Return the folder of a new run. Raises an error if it is not free, or the text or tokenizer is not found."""
    folder = check_path(config.out, "out")
    if is_run(folder):
        raise InputError(
            f"{format_path(folder)} already contains a run; use --resume to continue it, or another folder"
        )
    if not is_free(folder):
        raise InputError(
            f"cannot start a run in {format_path(folder)}: it is not an empty folder; choose another folder"
        )
    try:
        str(folder.absolute()).encode()
    except UnicodeEncodeError:
        raise InputError(f"{format_path(folder)} is not valid UTF-8, and safetensors requires UTF-8 paths") from None
    if config.files:
        next(read_chunks(config.files))  # reports missing and empty files early
        check_text_size(config)
    if config.tokenizer not in {"bytes", "bpe"}:
        find_file(check_path(config.tokenizer, "tokenizer"))
    return folder


def check_text_size(config: TrainConfig) -> None:
    """Raise InputError if the text has fewer bytes than one window has tokens."""
    size = sum(Path(file).stat().st_size for file in config.files)
    block_size = config.block_size or MIN_BLOCK_SIZE
    if config.tokenizer in {"bytes", "bpe"} and size <= block_size:
        smaller = ", or use a smaller --block-size" if size > MIN_BLOCK_SIZE else ""
        raise InputError(
            f"the text has only {pluralize(size, 'byte')}, but one window has {block_size + 1:,} tokens; add more "
            f"text{smaller}"
        )


def open_run(out: str, **not_saved: Any) -> tuple[Path, TrainConfig]:
    """Return a run's folder and settings, to resume it; `not_saved` are the settings that a run does not store."""
    folder = check_path(out, "out")
    if not is_run(folder):
        raise InputError(f"{format_path(folder)} contains no run to resume; start one without --resume")
    path = folder / "run" / CONFIG
    try:
        config = config_from_json(path.read_bytes(), out=out, **not_saved)
        for name in (*config.files, config.tokenizer):
            path_kind(Path(name))  # reports names that cannot be paths
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{format_path(path)} is damaged: {error}") from error
    return folder, config


def with_absolute_paths(config: TrainConfig) -> TrainConfig:
    """Return the config with absolute paths, so a run can be resumed from any folder."""
    files = tuple(str(check_path(file, "a file").resolve()) for file in config.files)
    tokenizer = config.tokenizer
    tokenizer = tokenizer if tokenizer in {"bpe", "bytes"} else str(Path(tokenizer).resolve())
    return replace(config, files=files, tokenizer=tokenizer)


def is_run(folder: Path) -> bool:
    return path_kind(folder / "run" / CONFIG) == "file"


def is_free(folder: Path) -> bool:
    """Return whether a run may start here: the folder is empty, or has only files of a process killed at startup."""
    leftovers = {folder / "run" / name for name in ("", "lock", f".{CONFIG}.saving")}
    return path_kind(folder) == "missing" or (folder.is_dir() and all(path in leftovers for path in folder.rglob("*")))
