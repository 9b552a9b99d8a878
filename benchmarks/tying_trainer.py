"""Remedies of the tying study that `inlayer train` does not have, because others work better (docs/tying.md).

Tested against a plain loop in tests/training/test_trainer.py.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from inlayer.training.config import DecoderConfig, TrainConfig
from inlayer.training.metrics import Metrics
from inlayer.training.optimizer import make_optimizers
from inlayer.training.trainer import Trainer


class StudyTrainer(Trainer):
    """A trainer that can also change the table, its gradient or its tie to the head.

    center                subtract the mean vector from the table after each step
    input_gradient_scale  factor applied to the gradient of the lookups
    untie_at              fraction of the steps after which the head gets its own copy of the table
    """

    def __init__(
        self,
        decoder_config: DecoderConfig,
        config: TrainConfig,
        *,
        center: bool = False,
        input_gradient_scale: float = 1.0,
        untie_at: float | None = None,
    ) -> None:
        super().__init__(decoder_config, config)
        self.center = center
        assert config.steps is not None
        self.last_tied_step = None if untie_at is None else min(round(untie_at * config.steps), config.steps - 1)
        if input_gradient_scale != 1.0:
            self.table.register_forward_hook(lambda _, __, rows: scale_gradient(rows, input_gradient_scale))

    def take_step(self, windows: Tensor) -> Metrics:
        if self.step == self.last_tied_step:
            self._untie()
        line = super().take_step(windows)
        if self.center:
            self._center()
        return line

    @torch.no_grad()
    def _center(self) -> None:
        """Subtract the mean vector from the table; the padding row stays zero."""
        weight_VD, padding_idx = self.table.weight, self.table.padding_idx
        rows = len(weight_VD) - (padding_idx is not None)
        weight_VD -= weight_VD.sum(0) / rows
        if padding_idx is not None:
            weight_VD[padding_idx] = 0

    def _untie(self) -> None:
        """Give the head its own copy of the table and of the table's moments."""
        moments = {parameter: state for one in self.optimizers for parameter, state in one.state.items()}
        self.decoder.head.untie()
        self.decoder.config = replace(self.decoder.config, tie=False)
        self.optimizers = make_optimizers(self.decoder, self.config)
        moments[self.decoder.head.weight] = {
            # A second moment shared by all rows becomes one per row.
            key: (value.expand_as(self.table.weight) if value.dim() else value).clone()
            for key, value in moments.get(self.table.weight, {}).items()
        }
        for optimizer in self.optimizers:
            own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            optimizer.state.update({parameter: moments[parameter] for parameter in own if moments.get(parameter)})


def scale_gradient(rows: Tensor, factor: float) -> Tensor:
    """The same values; backward, the gradient is multiplied by `factor`."""
    return rows * factor + rows.detach() * (1 - factor) if rows.requires_grad else rows
