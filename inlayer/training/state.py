"""Saved training states: everything that the next step needs, so a run killed at any moment can resume.

- a state is one safetensors file of weights and moments, with the step and a checksum in its metadata
- it is written under a temporary name and renamed once it is on disk. The last two states are kept
- a state is verified when it is loaded. A damaged state is kept and reported, with any earlier intact state
- pickle is not used, and no random state is saved: random numbers are derived from the step number
Tested with damaged files, full disks, and killed processes in tests/training/test_state.py and test_resume.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from inlayer.errors import CheckpointError, InputError
from inlayer.files import atomic_path, format_path

KEPT_STATES = 2


class State(NamedTuple):
    """A saved state; `metadata` contains the run's checksums."""

    step: int
    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def save_state(folder: Path, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write the state after a step, then remove all but the last two."""
    metadata = {**metadata, "step": str(step)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"state-{step:09}.safetensors"
        write_tensors(path, tensors, metadata={**metadata, "sha256": _digest(tensors, metadata)})
    except OSError as error:
        last = max(_states(folder), default=None)
        earlier = "no earlier state exists" if last is None else f"the state of step {last:,} is kept"
        raise InputError(
            f"the state of step {step:,} cannot be written to {format_path(folder)}: {error.strerror or error}; "
            f"{earlier}"
        ) from error
    for leftover in folder.glob(".state-*"):
        leftover.unlink(missing_ok=True)
    for _, old in sorted(_states(folder).items())[:-KEPT_STATES]:
        old.unlink(missing_ok=True)


def load_state(folder: Path) -> State | None:
    """Return the newest state, verified, or None if there are no states."""
    states = sorted(_states(folder).items(), reverse=True)
    if not states:
        return None
    (step, path), *earlier = states
    try:
        return _read(step, path)
    except ValueError as error:
        advice = "no other state is intact; start a new run in another folder"
        for earlier_step, file in earlier:
            with suppress(ValueError):
                _read(earlier_step, file)
                advice = f"the state of step {earlier_step:,} is intact: to resume from it, remove {path.name}"
        raise CheckpointError(
            f"{format_path(path)}, the state of step {step:,}, is damaged: {error}; {advice}"
        ) from error


def model_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the decoder's weights in a state, under the decoder's names."""
    return {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file atomically."""
    with atomic_path(path) as new:
        try:
            save_file(dict(tensors), new, metadata=metadata)
        except SafetensorError as error:  # safetensors reports a full disk this way
            raise OSError(str(error)) from error


def _states(folder: Path) -> dict[int, Path]:
    steps = {path: path.stem.removeprefix("state-") for path in folder.glob("state-*.safetensors")}
    return {int(step): path for path, step in steps.items() if step.isascii() and step.isdigit()}


def _read(step: int, path: Path) -> State:
    """Read a state. Raises ValueError if it is damaged."""
    try:
        with safe_open(path, "pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(str(error)) from error
    digest = metadata.pop("sha256", "")
    if metadata.get("step") != str(step) or digest != _digest(tensors, metadata):
        raise ValueError("its checksum does not match")
    return State(step, tensors, metadata)


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Return the checksum of the metadata and of all names, dtypes, shapes, and values."""
    digest = hashlib.sha256(repr(sorted(metadata.items())).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
