"""The trainer: one step after another, in memory.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> loss -> and all the way back
- a step is a function of weights, moments, its windows and its number: nothing else is kept, so that a run that goes on
  from a state takes the same steps to the bit. Dropout is seeded by the step's number
- the loss of a step is the mean over all its tokens, whatever the number of passes and processes it is done in
- what a measured step tells more: the rows of the table, and which side its gradient comes from (telemetry.py)
- in a world of many processes (parallel.py) every one calls every method, with the same windows
- not here: files, and when to stop (run.py)
Checked against a plain loop with torch's AdamW in tests/training/test_trainer.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from inlayer.errors import ConfigError, ShapeError
from inlayer.tables import Table
from inlayer.training.config import Settings
from inlayer.training.decoder import Decoder, DecoderConfig
from inlayer.training.metrics import InputSide, measure_rows
from inlayer.training.optimizer import make_optimizers, set_rates
from inlayer.training.parallel import (
    World,
    clip_gradients,
    full_optimizer_state,
    full_state,
    load_full_optimizer_state,
    load_full_state,
    shard,
    take_rows,
    whole,
)

__all__ = ["Trainer"]

Metrics = dict[str, int | float]


class Trainer:
    """A decoder on its way: `decoder`, `step` (how many were taken), `take_step`, `validate`, `state`, `load`."""

    def __init__(
        self, config: DecoderConfig, settings: Settings, *, world: World | None = None, how: str = "data"
    ) -> None:
        self.settings, self.step, self.world, self.how = settings, 0, world or World(), how
        self._check_settings(config)
        self.decoder = Decoder(config, seed=settings.seed).train()
        self.decoder = shard(self.decoder.to(self.world.device), how, self.world)
        self.optimizers = make_optimizers(self.decoder, settings)
        if settings.input_gradient != 1.0:
            self.table.register_forward_hook(lambda _, __, rows: weaken(rows, settings.input_gradient))

    @property
    def table(self) -> Table:
        """The table that learns."""
        table = self.decoder.embeddings.token_embedding
        assert isinstance(table, Table)
        return table

    def take_step(self, windows: Tensor) -> Metrics:
        """One step on windows (batch_size, block_size + 1): the loss before it, and what was seen on the way."""
        self._check(windows)
        settings, step = self.settings, self.step + 1
        if settings.untie_at is not None and step == self._last_tied_step + 1:
            self._untie()
        set_rates(self.optimizers, settings.rate_at(step))
        side = InputSide(self.decoder) if self._is_measured(step) and self.decoder.head.tied else None
        with side.watched() if side else nullcontext():
            loss = self._backward(windows, step)
        seen = self._measure(windows, side) if self._is_measured(step) else {}
        norm = clip_gradients(self.decoder.parameters(), settings.clip or None, self.world)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if settings.center:
            self._centre()
        self.step = step
        return {
            "step": step,
            "loss": loss,
            "learning_rate": settings.rate_at(step),
            "gradient_norm": float(norm),
            **seen,
        }

    @torch.no_grad()
    def validate(self, batches: Iterable[Tensor]) -> float:
        """The mean loss over windows (n, block_size + 1), without what training adds to it. Every process does all."""
        self.decoder.eval()
        total, count = 0.0, 0
        try:
            for windows in batches:
                with self._autocast():
                    given = windows.to(self.world.device)
                    total += float(self.decoder.loss(given[:, :-1], given[:, 1:], reduction="sum"))
                count += windows[:, 1:].numel()
        finally:
            self.decoder.train()
        return total / count

    # ---- state

    def state(self) -> dict[str, Tensor]:
        """Weights and moments by name, all that the next step needs besides its number; in the first process only."""
        kept = {f"model.{name}": value for name, value in full_state(self.decoder, self.world).items()}
        for optimizer in self.optimizers:
            for name, moments in full_optimizer_state(self.decoder, optimizer, self.world).items():
                kept |= {f"optimizer.{name}.{key}": value for key, value in moments.items()}
        return kept

    def load(self, step: int, state: Mapping[str, Tensor]) -> None:
        """Go on from the state after a step, on any number of processes; each gives all of it."""
        if self.settings.untie_at is not None and step > self._last_tied_step:
            self._untie()
        self.step = step
        model: dict[str, Tensor] = {}
        moments: dict[str, dict[str, Tensor]] = {}
        for name, value in state.items():
            kind, _, rest = name.partition(".")
            if kind == "model":
                model[rest] = value
            else:
                moments.setdefault(rest.rpartition(".")[0], {})[rest.rpartition(".")[2]] = value
        load_full_state(self.decoder, model)
        names = {id(parameter): name for name, parameter in self.decoder.named_parameters()}
        for optimizer in self.optimizers:
            own = {names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]}
            kept = {name: values for name, values in moments.items() if name in own}
            load_full_optimizer_state(self.decoder, optimizer, kept)

    # ---- the parts of a step

    def _check_settings(self, config: DecoderConfig) -> None:
        settings, size = self.settings, self.world.size
        if settings.untie_at is not None and not config.tie:
            raise ConfigError("untie_at is for a tied decoder; this one's head has its own rows from the start")
        parts = size * settings.accumulate if self.how == "data" else settings.accumulate
        if settings.batch_size % parts:
            raise ConfigError(
                f"batch_size {settings.batch_size} cannot be divided equally among {size} processes in "
                f"{settings.accumulate} passes"
            )
        alone = {
            "center": settings.center,
            "shared_moment": settings.shared_moment,
            "untie_at": settings.untie_at is not None,
        }
        for name in (name for name, wanted in alone.items() if wanted and size > 1):
            raise ConfigError(f"{name} is for one process; there are {size}")

    def _check(self, windows: Tensor) -> None:
        expected = (self.settings.batch_size, self.decoder.config.block_size + 1)
        if windows.shape != expected:
            raise ShapeError(f"windows have shape {tuple(windows.shape)}; a step takes {expected}")

    def _is_measured(self, step: int) -> bool:
        return step == 1 or self.settings.is_due(self.settings.measure_every, step)

    def _autocast(self) -> torch.autocast:
        bfloat16 = self.settings.precision == "bfloat16"
        return torch.autocast(self.world.device.type, torch.bfloat16, enabled=bfloat16)

    def _backward(self, windows: Tensor, step: int) -> float:
        """Gradients of the mean over all tokens of the step, and that mean."""
        if self.decoder.config.dropout:
            rank = self.world.rank if self.how == "data" else 0  # processes that see the same tokens drop the same
            torch.manual_seed(mix(self.settings.seed, step, rank))
        own = take_rows(windows, self.how, self.world).to(self.world.device)
        count, divided = windows[:, 1:].numel(), self.how == "data"
        weight = (self.world.size if divided else 1) / count  # divided among processes, gradients are averaged
        total = 0.0
        for part in own.chunk(self.settings.accumulate):
            with self._autocast():
                summed = self.decoder.loss(part[:, :-1], part[:, 1:], reduction="sum", z_loss=self.settings.z_loss)
            (summed * weight).backward()  # type: ignore[no-untyped-call]
            total += float(summed.detach())
        return (math.fsum(self.world.gather(total)) if divided else total) / count

    def _measure(self, windows: Tensor, side: InputSide | None) -> Metrics:
        """Of the table, before the step changes it."""
        seen = measure_rows(whole(self.table.weight), self.table.padding_idx)
        total_VD = whole_gradient(self.table.weight)
        if side is not None:
            input_VD = side.total(self.world if self.how == "data" else World())
            into, out = float(input_VD.norm()), float((total_VD - input_VD).norm())
        else:
            into, out = float(total_VD.norm()), float(whole_gradient(self.decoder.head.weight).norm())
        seen |= {"input_gradient": into, "output_gradient": out, "output_share": out / (into + out or 1.0)}
        if self.world.size == 1:
            self.decoder.eval()
            with torch.no_grad(), self._autocast():
                logits = self.decoder.logits(windows[:1, :-1].to(self.world.device))
            self.decoder.train()
            seen["logit_std"] = float(logits.float().std())
        return seen

    @torch.no_grad()
    def _centre(self) -> None:
        weight_VD, padding_idx = self.table.weight, self.table.padding_idx
        rows = len(weight_VD) - (padding_idx is not None)
        weight_VD -= weight_VD.sum(0) / rows
        if padding_idx is not None:
            weight_VD[padding_idx] = 0

    @property
    def _last_tied_step(self) -> int:
        assert self.settings.untie_at is not None
        return min(round(self.settings.untie_at * self.settings.steps), self.settings.steps - 1)

    def _untie(self) -> None:
        """The head gets its own rows, equal to the table's, and moments equal to the table's."""
        kept = {id(parameter): moments for one in self.optimizers for parameter, moments in one.state.items()}
        self.decoder.head.untie()
        self.decoder.config = replace(self.decoder.config, tie=False)
        self.optimizers = make_optimizers(self.decoder, self.settings)
        of_table = kept.get(id(self.table.weight), {})
        kept[id(self.decoder.head.weight)] = {
            # A moment that the table's rows share is one for each row of the head.
            key: (value.expand_as(self.table.weight) if value.dim() else value).clone()
            for key, value in of_table.items()
        }
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if kept.get(id(parameter)):
                        optimizer.state[parameter] = kept[id(parameter)]


def mix(seed: int, *place: int) -> int:
    """A seed for a place in a run, as good as never that of another."""
    return int(np.random.SeedSequence(seed, spawn_key=place).generate_state(1, np.uint64)[0])


def whole_gradient(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return whole(weight.grad)


def weaken(rows: Tensor, factor: float) -> Tensor:
    """The same values; on the way back, `factor` times the gradient."""
    return rows * factor + rows.detach() * (1 - factor) if rows.requires_grad else rows
