"""One training step: inlayer's trainer compared with the same transformers model in a plain loop.

Both are the same Llama with the same weights, fused AdamW, clipping and windows; their losses must agree step by step
before anything is timed. The plain loop computes the loss with `model(input_ids, labels=...)`, which holds all logits;
inlayer never does.

The limit is the matrix products of the linear layers and the head, forward and backward. It leaves out attention,
activations, norms, the loss and the optimizer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import Result, installed, interleave, linear_products, milliseconds, ratio
from inlayer.training.config import DecoderConfig, TrainConfig
from inlayer.training.export import save_decoder
from inlayer.training.trainer import Trainer

CASES = (
    {"vocab_size": 4_096, "n_embd": 128, "n_layer": 4, "batch_size": 16, "tie": True},
    {"vocab_size": 4_096, "n_embd": 256, "n_layer": 4, "batch_size": 8, "tie": False},
    {"vocab_size": 32_000, "n_embd": 256, "n_layer": 4, "batch_size": 8, "tie": True},
    {"vocab_size": 128_256, "n_embd": 128, "n_layer": 2, "batch_size": 4, "tie": True},
)
BLOCK, ROUNDS = 128, 6
LIMIT = "limit: matrix products"


def peers(case: dict[str, Any]) -> tuple[dict[str, Callable[[], float]], Callable[[], None], int]:
    """A function that takes one step for each implementation, the limit, and the number of tokens per step."""
    from transformers import LlamaForCausalLM

    sizes = {name: case[name] for name in ("vocab_size", "n_embd", "n_layer", "tie")}
    config = DecoderConfig(architecture="llama", n_head=4, n_kv_head=2, block_size=BLOCK, **sizes)
    # A constant rate and no decay keep the plain loop short.
    settings = TrainConfig(
        steps=10_000,
        batch_size=case["batch_size"],
        warmup_steps=0,
        lr_schedule="constant",
        weight_decay=0.0,
        log_interval=0,
    )
    trainer = Trainer(config, settings)
    trainer.step = 1  # the first step is always measured
    with tempfile.TemporaryDirectory() as folder:
        save_decoder(trainer.decoder, Path(folder, "model"))
        plain = LlamaForCausalLM.from_pretrained(f"{folder}/model", attn_implementation="sdpa").train()
    optimizer = torch.optim.AdamW(
        plain.parameters(),
        lr=settings.learning_rate,
        betas=(settings.adam_beta1, settings.adam_beta2),
        weight_decay=0.0,
        fused=True,
    )
    random = torch.Generator().manual_seed(0)
    windows = torch.randint(0, config.vocab_size, (case["batch_size"], BLOCK + 1), generator=random)

    targets = windows[:, 1:].contiguous()

    def plain_step() -> float:
        loss: Tensor = plain(input_ids=windows[:, :-1], labels=targets, shift_labels=targets).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    both = {"inlayer": lambda: trainer.take_step(windows)["loss"], "transformers": plain_step}
    linear = [module.weight for module in plain.modules() if isinstance(module, torch.nn.Linear)]  # with the head
    return both, linear_products(linear, targets.numel()), targets.numel()


def run() -> Iterator[Result]:
    """Yield one result per size."""
    for case in CASES:
        both, limit, tokens = peers(case)
        for _ in range(3):  # checks that both compute the same, and warms up
            torch.testing.assert_close(both["inlayer"](), both["transformers"](), rtol=1e-4, atol=1e-4)
        seconds = interleave({**both, LIMIT: limit}, ROUNDS)
        large = case["vocab_size"] >= 32_000
        yield Result(
            name="train",
            ratios=[
                ratio(
                    "time per step: inlayer / transformers",
                    seconds["inlayer"],
                    seconds["transformers"],
                    at_most=1.0 if large else 1.1,
                ),
                ratio(f"time per step: inlayer / {LIMIT}", seconds["inlayer"], seconds[LIMIT]),
            ],
            measured={
                **milliseconds(seconds),
                "tokens_per_second": {name: round(tokens / min(seconds[name])) for name in both},
            },
            sizes={**case, "block_size": BLOCK},
            notes=[f"transformers {installed('transformers')}, attention with sdpa"],
        )
