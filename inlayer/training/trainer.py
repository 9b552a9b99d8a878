"""Trainer: takes optimizer steps on a decoder, in memory.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> loss, and backward
- a step depends only on weights, moments, windows, and the step number (which seeds dropout), so a resumed run takes
  bit-identical steps
- the loss of a step is the mean over all its tokens, regardless of the number of passes and processes
- some steps also measure the table and its gradients (metrics.py)
- with several processes (parallel.py), all of them call every method with the same windows
- see also: the files of a run, and when it stops (resumable_run.py)
Tested against a plain loop with torch's AdamW in tests/training/test_trainer.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from inlayer.errors import ConfigError, ShapeError
from inlayer.tables import Table
from inlayer.training.config import DecoderConfig, TrainConfig, is_due
from inlayer.training.decoder import Decoder
from inlayer.training.lr_schedule import learning_rate_at
from inlayer.training.metrics import Metrics, measure_rows, record_input_gradient
from inlayer.training.optimizer import make_optimizers, set_learning_rates
from inlayer.training.parallel import (
    DistributedContext,
    clip_gradients,
    full_state,
    full_tensor,
    load_full_state,
    shard,
)

SINGLE_PROCESS = DistributedContext()


class Trainer:
    """Trains a decoder: `decoder`, `step` (steps taken so far), `take_step`, `validate`, `state`, `load`."""

    def __init__(
        self, decoder_config: DecoderConfig, config: TrainConfig, context: DistributedContext = SINGLE_PROCESS
    ) -> None:
        self.config, self.step, self.context = config, 0, context
        self.batch_parts = context.size if config.parallel == "data" else 1  # each process takes one part
        self.batch_part = context.rank % self.batch_parts
        if config.batch_size % (self.batch_parts * config.gradient_accumulation_steps):
            raise ConfigError(
                f"batch_size {config.batch_size} cannot be split evenly over {self.batch_parts} processes with "
                f"gradient_accumulation_steps {config.gradient_accumulation_steps}"
            )
        if context.size > 1 and config.shared_second_moment:
            raise ConfigError(f"shared_second_moment works only in a single process, but there are {context.size}")
        decoder = Decoder(decoder_config, seed=config.seed).train()
        self.decoder = shard(decoder.to(self.context.device), config.parallel, self.context)
        self.optimizers = make_optimizers(self.decoder, config)

    @property
    def table(self) -> Table:
        """The embedding table in training."""
        table = self.decoder.embeddings.token_embedding
        assert isinstance(table, Table)
        return table

    def take_step(self, windows: Tensor) -> Metrics:
        """Take one step on windows (batch_size, block_size + 1); return the loss before it and other metrics."""
        expected = (self.config.batch_size, self.decoder.config.block_size + 1)
        if windows.shape != expected:
            raise ShapeError(f"windows have shape {tuple(windows.shape)}; expected {expected}")
        config, step = self.config, self.step + 1
        measured = step == 1 or is_due(config, config.log_interval, step)
        learning_rate = learning_rate_at(config, step)
        set_learning_rates(self.optimizers, learning_rate)
        tied = measured and self.decoder.head.tied
        handle, input_gradient = record_input_gradient(self.table) if tied else (nullcontext(), None)
        with handle:
            loss = self._backward(windows, step)
        measurements = self._measure(windows, input_gradient) if measured else {}
        norm = clip_gradients(self.decoder.parameters(), config.max_grad_norm or None, self.context)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step = step
        return {
            "step": step,
            "loss": loss,
            "learning_rate": learning_rate,
            "gradient_norm": float(norm),
            **measurements,
        }

    @torch.no_grad()
    def validate(self, batches: Iterable[Tensor]) -> float:
        """Return the mean loss over windows (n, block_size + 1), without dropout and z-loss.

        Every process computes the whole loss.
        """
        self.decoder.eval()
        total, count = 0.0, 0
        try:
            for windows in batches:
                with self._autocast():
                    moved = windows.to(self.context.device)
                    total += float(self.decoder.loss(moved[:, :-1], moved[:, 1:], reduction="sum"))
                count += windows[:, 1:].numel()
        finally:
            self.decoder.train()
        return total / count

    # ---- state

    def state(self) -> dict[str, Tensor]:
        """Return the weights and moments by name: everything the next step needs except the step number.

        The result is empty in all processes except the main one.
        """
        return full_state(self.decoder, self.optimizers, self.context)

    def load(self, step: int, state: Mapping[str, Tensor]) -> None:
        """Continue from the state after a step, on any number of processes; each process passes the whole state."""
        load_full_state(self.decoder, self.optimizers, state)
        self.step = step

    # ---- parts of a step

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.context.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16")

    def _backward(self, windows: Tensor, step: int) -> float:
        """Accumulate the gradients of the mean loss over all tokens in the step, and return that mean."""
        if self.decoder.config.dropout:
            # Processes with the same tokens drop the same values in dropout.
            seeds = np.random.SeedSequence(self.config.seed, spawn_key=(step, self.batch_part))
            torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0]))
        local = windows[self.batch_part :: self.batch_parts].to(self.context.device)
        count = windows[:, 1:].numel()
        weight = self.batch_parts / count  # FSDP averages gradients over processes
        total = 0.0
        for part in local.chunk(self.config.gradient_accumulation_steps):
            with self._autocast():
                loss = self.decoder.loss(part[:, :-1], part[:, 1:], reduction="sum", z_loss=self.config.z_loss)
            (loss * weight).backward()
            total += float(loss.detach())
        return (math.fsum(self.context.gather(total)) if self.batch_parts > 1 else total) / count

    def _measure(self, windows: Tensor, input_VD: Tensor | None) -> Metrics:
        """Measure the table and its gradients before the step changes them."""
        measured: Metrics = {**measure_rows(full_tensor(self.table.weight), self.table.padding_idx)}
        total_VD = full_tensor(self.table.weight.grad)
        if input_VD is None:
            input_VD, output_VD = total_VD, full_tensor(self.decoder.head.weight.grad)
        else:
            if self.batch_parts > 1:  # processes have different tokens
                torch.distributed.all_reduce(input_VD)
                input_VD /= self.batch_parts
            output_VD = total_VD - input_VD
        from_input, from_output = float(input_VD.norm()), float(output_VD.norm())
        share = from_output / (from_input + from_output or 1.0)
        measured |= {
            "lookup_gradient_norm": from_input,
            "head_gradient_norm": from_output,
            "head_gradient_share": share,
        }
        if self.context.size == 1:
            self.decoder.eval()
            with torch.no_grad(), self._autocast():
                logits = self.decoder.logits(windows[:1, :-1].to(self.context.device))
            self.decoder.train()
            measured["logit_std"] = float(logits.float().std())
        return measured
