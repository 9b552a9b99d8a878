"""Settings: what a run is asked to do with a decoder and its tokens, besides what the decoder is.

- every number a step depends on is here or in DecoderConfig, so that both and the tokens give the same losses again
- rates of table and head are factors of the learning rate; neither decays by default: a decayed row of a rare token
  shrinks between its few gradients
- `z_loss` to `untie_at` are cures for a tied table (docs/tying.md), off unless said
- not here: where files go (run.py)
Checked in tests/training/test_trainer.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from inlayer.errors import ConfigError
from inlayer.shapes import check_seed

__all__ = ["SCHEDULES", "Settings"]

SCHEDULES = ("cosine", "linear", "constant")
PRECISIONS = ("float32", "bfloat16")

COUNTS = {"steps": 1, "batch_size": 1, "accumulate": 1, "warmup": 0, "validate_every": 0, "validation_windows": 1}
COUNTS |= {"save_every": 0, "measure_every": 0}
NOT_NEGATIVE = ("learning_rate", "table_rate", "head_rate", "weight_decay", "table_decay", "epsilon", "clip", "z_loss")
SHARES = ("beta1", "beta2", "final_rate", "input_gradient")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a decoder is trained.

    batch_size      windows of block_size tokens in a step, over all processes; done in `accumulate` passes
    table_rate      times learning_rate: of the table, and of a head of its own (head_rate)
    weight_decay    of the body's matrices; table_decay: of table, positions and head; norms and biases never decay
    warmup          steps until the learning rate is reached; then `schedule` leads it to final_rate times that
    clip            the largest norm of the gradient; 0 for none
    precision       "float32", or "bfloat16": weights stay float32, the products are done in bfloat16 (autocast)
    validate_every  steps between two looks at the validation tokens; save_every: between two states of the run on disk;
                    measure_every: between two measurements of the table. 0 for never; after the last step always
    z_loss          times the mean square of each token's log normalizer, added to the loss
    center          the mean row is taken off the table after each step
    shared_moment   Adam's second moment of the table is averaged over the vocabulary
    input_gradient  times the gradient that reaches the table from the input side
    untie_at        the share of the steps after which the head gets its own copy of the table, and of Adam's moments
    """

    steps: int = 600
    batch_size: int = 16
    accumulate: int = 1
    learning_rate: float = 2e-3
    table_rate: float = 1.0
    head_rate: float = 1.0
    weight_decay: float = 0.1
    table_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    warmup: int = 50
    schedule: str = "cosine"
    final_rate: float = 0.1
    clip: float = 1.0
    precision: str = "float32"
    seed: int = 0
    validate_every: int = 100
    validation_windows: int = 64
    save_every: int = 100
    measure_every: int = 20
    z_loss: float = 0.0
    center: bool = False
    shared_moment: bool = False
    input_gradient: float = 1.0
    untie_at: float | None = None

    def __post_init__(self) -> None:
        for name, least in COUNTS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{name} is {value!r}; it must be a whole number of at least {least}")
        for name in (*NOT_NEGATIVE, *SHARES):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
                raise ConfigError(f"{name} is {value!r}; it must be a number of at least 0")
            if name in SHARES and value > 1:
                raise ConfigError(f"{name} is {value!r}; it is a share, at most 1")
        if max(self.beta1, self.beta2) >= 1 or self.epsilon == 0:
            raise ConfigError(f"beta1 {self.beta1}, beta2 {self.beta2} and epsilon {self.epsilon} let Adam divide by 0")
        if self.batch_size % self.accumulate:
            raise ConfigError(f"accumulate {self.accumulate} does not divide batch_size {self.batch_size}")
        for name, choices in (("schedule", SCHEDULES), ("precision", PRECISIONS)):
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; choose one of {', '.join(choices)}")
        if self.untie_at is not None and not 0 < self.untie_at < 1:
            raise ConfigError(f"untie_at is {self.untie_at!r}; it is a share of the steps, between 0 and 1")
        check_seed(self.seed)

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, the first of which is 1."""
        if step <= self.warmup:
            return self.learning_rate * step / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        left = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "constant": 1.0}[self.schedule]
        return self.learning_rate * (self.final_rate + (1 - self.final_rate) * left)

    def is_due(self, every: int, step: int) -> bool:
        """Whether what is done every so many steps is done after this one."""
        return step == self.steps or (every > 0 and step % every == 0)
