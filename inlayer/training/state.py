"""The state of a run on disk: everything the next step needs, to go on from after a kill at any moment.

- one safetensors file of weights and moments, and beside it a JSON file with the step, the size and the checksum. The
  JSON file is written last: without it the other does not count
- each is written under another name and moved when it has reached the disk. The last two states are kept
- a state is checked before it is used: a damaged one is an error that says which earlier one is whole, and stays
- no pickle; random numbers need no state, for they are drawn from the step's number
Checked by damaging it, filling the disk and killing in tests/training/test_state.py and tests/training/test_resume.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from inlayer.errors import CheckpointError, InputError
from inlayer.paths import shown
from inlayer.saving import put
from inlayer.training.folder import put_tensors

__all__ = ["State", "find_state", "load_state", "save_state"]

KEPT = 2
BLOCK = 2**20


@dataclass(frozen=True, kw_only=True)
class State:
    """A state on disk, not yet read."""

    step: int
    path: Path
    facts: dict[str, Any]


def save_state(folder: Path, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write the state after a step; older ones but one are removed once it is safe."""
    path = folder / f"state-{step:09}.safetensors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        put_tensors(path, tensors)
        told = {**facts, "step": step, "size": path.stat().st_size, "sha256": _digest(path)}
        put(path.with_suffix(".json"), (json.dumps(told, indent=2) + "\n").encode())
    except OSError as error:
        last = max((state.step for state in _states(folder)), default=None)
        kept = "no earlier state was there" if last is None else f"the state of step {last:,} is kept"
        raise InputError(
            f"the state of step {step:,} cannot be written to {shown(folder)}: {error.strerror or error}; {kept}"
        ) from error
    states = {state.step: state.path for state in _states(folder)}
    kept_steps = sorted(states)[-KEPT:]
    for path in folder.glob(".state-*"):
        path.unlink(missing_ok=True)
    for path in folder.glob("state-*"):
        if _step_of(path) not in (None, *kept_steps):
            path.unlink(missing_ok=True)


def find_state(folder: Path) -> State | None:
    """The newest state, checked; None where there is none. A damaged one is an error."""
    states = sorted(_states(folder), key=lambda state: state.step, reverse=True)
    if not states:
        return None
    if not (wrong := _what_is_wrong(states[0])):
        return states[0]
    whole = next((state for state in states[1:] if not _what_is_wrong(state)), None)
    advice = (
        "no other is whole: train anew into another folder"
        if whole is None
        else f"that of step {whole.step:,} is whole: remove {states[0].path.with_suffix('.json').name} to go on there"
    )
    raise CheckpointError(
        f"{shown(states[0].path)}, the state of step {states[0].step:,}, is damaged: {wrong}; {advice}"
    )


def load_state(state: State) -> dict[str, Tensor]:
    """Its tensors."""
    try:
        return load_file(state.path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{shown(state.path)} is damaged: {error}") from error


def _states(folder: Path) -> list[State]:
    """All that were written to their end, damaged ones included."""
    found = []
    for path in folder.glob("state-*.json"):
        step = _step_of(path)
        try:
            facts = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            facts = None
        if step is not None:
            found.append(
                State(step=step, path=path.with_suffix(".safetensors"), facts=facts if isinstance(facts, dict) else {})
            )
    return found


def _what_is_wrong(state: State) -> str | None:
    if state.facts.get("step") != state.step or not isinstance(state.facts.get("size"), int):
        return f"{state.path.with_suffix('.json').name} is not what was written"
    try:
        size = state.path.stat().st_size
        if size != state.facts["size"]:
            return f"it has {size:,} bytes, {state.facts['size']:,} were written"
        return None if _digest(state.path) == state.facts.get("sha256") else "its bytes are not those that were written"
    except OSError as error:
        return error.strerror or str(error)


def _step_of(path: Path) -> int | None:
    number = path.name.split(".")[0].removeprefix("state-")
    return int(number) if number.isascii() and number.isdigit() else None


def _digest(path: Path) -> str:
    made = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            made.update(block)
    return made.hexdigest()
