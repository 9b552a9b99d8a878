"""Decoder: a small transformer between the input layer and the head, to train embeddings with.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> logits
- "gpt" follows GPT-2 (LayerNorm, tanh GELU, biases, positions added to the rows), and "llama" follows
  Llama (rotary positions, RMSNorm, SwiGLU, grouped-query attention, no biases)
- queries, keys, and values share one projection, as do gate and up in a SwiGLU: fewer, larger matrix products
- weights are initialized as in the reference models: N(0, init_std), with GPT-2's projections into the residual stream
  scaled by 1 / sqrt(2 n_layer). With a seed, the global random state is neither read nor changed
- dropout is applied where the reference models apply it: in gpt after the input layer, in attention, and after both
  halves of a block; in llama only in attention
- `input_scale`, `output_scale`, `soft_cap`, and `input_norm` are not part of either model; they stabilize tied tables
- see also: DecoderConfig (config.py), training (trainer.py), files (export.py). There is no key/value cache
Tested against transformers in tests/training/test_export.py; other rules in tests/training/test_decoder.py.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from inlayer.embeddings import Embeddings
from inlayer.errors import ShapeError
from inlayer.head import Head, Reduction
from inlayer.positions import apply_rotary
from inlayer.tensors import check_ids
from inlayer.training.config import DecoderConfig


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.heads = (config.n_head, config.kv_heads, config.kv_heads)
        self.head_dim, self.dropout = config.head_dim, config.dropout
        biased, width = config.architecture == "gpt", sum(self.heads) * config.head_dim
        self.qkv = nn.Linear(config.n_embd, width, bias=biased)
        self.out = nn.Linear(config.n_embd, config.n_embd, bias=biased)

    def forward(
        self, hidden_BTD: Float[Tensor, "B T D"], rotary: tuple[Tensor, Tensor] | None
    ) -> Float[Tensor, "B T D"]:
        batch, tokens, _ = hidden_BTD.shape
        qkv_BHTK = self.qkv(hidden_BTD).view(batch, tokens, -1, self.head_dim).transpose(1, 2)
        q, k, v = qkv_BHTK.split(self.heads, dim=1)
        if rotary is not None:
            q, k = apply_rotary(q, k, *rotary)
        values_BHTK = functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0, enable_gqa=k.shape != q.shape
        )
        return self.out(values_BHTK.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """Feed-forward layer: GELU for gpt, SwiGLU for llama."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.gated, biased = config.architecture == "llama", config.architecture == "gpt"
        width = config.hidden_width
        self.up = nn.Linear(config.n_embd, 2 * width if self.gated else width, bias=biased)
        self.down = nn.Linear(width, config.n_embd, bias=biased)

    def forward(self, hidden_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        inner = self.up(hidden_BTD)
        if self.gated:
            gate, inner = inner.chunk(2, dim=-1)
            activated = functional.silu(gate) * inner
        else:
            activated = functional.gelu(inner, approximate="tanh")
        return self.down(activated)  # type: ignore[no-any-return]


class Block(nn.Module):
    """Transformer block with pre-norm attention and feed-forward layers."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.attention_norm = make_norm(config)
        self.attention = Attention(config)
        self.feed_forward_norm = make_norm(config)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout if config.architecture == "gpt" else 0.0)

    def forward(
        self, hidden_BTD: Float[Tensor, "B T D"], rotary: tuple[Tensor, Tensor] | None
    ) -> Float[Tensor, "B T D"]:
        hidden_BTD = hidden_BTD + self.dropout(self.attention(self.attention_norm(hidden_BTD), rotary))
        return hidden_BTD + self.dropout(self.feed_forward(self.feed_forward_norm(hidden_BTD)))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """Language model made of `embeddings`, `blocks`, `norm`, and `head`.

    >>> config = DecoderConfig(architecture="gpt", vocab_size=256, n_embd=8, n_layer=1, n_head=2, block_size=16)
    >>> Decoder(config, seed=0).logits(torch.tensor([[72, 105]])).shape
    torch.Size([1, 2, 256])
    """

    def __init__(
        self, config: DecoderConfig, *, seed: int | None = None, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(
            config.vocab_size,
            config.n_embd,
            config.block_size if config.position_scheme in {"learned", "sinusoidal"} else None,
            positions=config.position_scheme,
            padding_idx=config.padding_idx,
            init=config.init,
            init_std=config.init_std,
            seed=seed,
            scale=config.input_scale,
            dropout=config.dropout if config.architecture == "gpt" else 0.0,
            head_dim=config.head_dim if config.position_scheme == "rotary" else None,
            theta=config.theta,
            device=device,
        )
        with torch.device("meta"):  # on the meta device, no random numbers are drawn
            self.input_norm = make_norm(config) if config.input_norm else None
            self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
            self.norm = make_norm(config)
            self.head = Head(
                config.n_embd,
                config.vocab_size,
                hidden_scale=config.output_scale,
                soft_cap=config.soft_cap,
                padding_idx=self.embeddings.padding_idx,
                init_std=config.init_std,
            )
        if config.tie:
            self.embeddings.tie(self.head)
        table = self.embeddings.token_embedding.weight
        if not table.is_meta:
            for module in {*self.children()} - {self.embeddings}:
                module.to_empty(device=table.device)
            self._initialize(None if seed is None else torch.Generator(table.device).manual_seed(seed))

    @torch.no_grad()
    def _initialize(self, generator: torch.Generator | None) -> None:
        """Initialize all weights except the input layer, which Embeddings has initialized."""
        std = residual_std = self.config.init_std
        if self.config.architecture == "gpt":
            residual_std = std / math.sqrt(2 * self.config.n_layer)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                is_residual = name.endswith((".out", ".down"))
                module.weight.normal_(0.0, residual_std if is_residual else std, generator=generator)
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
                module.reset_parameters()  # ones and zeros
        if not self.config.tie:
            self.head.weight.normal_(0.0, std, generator=generator)

    def forward(self, input_ids: Tensor) -> Float[Tensor, "B T D"]:
        """Return the hidden states after the last norm, which are the input of the head."""
        input_ids = check_ids(input_ids)
        if input_ids.dim() != 2:
            raise ShapeError(f"input_ids has shape {tuple(input_ids.shape)}; expected (batch, tokens)")
        hidden_BTD = self.embeddings(input_ids)
        rotary = None
        if self.config.position_scheme == "rotary":
            rotary = self.embeddings.rotary(torch.arange(input_ids.shape[1], device=input_ids.device))
        if self.input_norm is not None:
            hidden_BTD = self.input_norm(hidden_BTD)
        for block in self.blocks:
            hidden_BTD = block(hidden_BTD, rotary)
        return self.norm(hidden_BTD)  # type: ignore[no-any-return]

    def logits(self, input_ids: Tensor) -> Float[Tensor, "B T V"]:
        """Return next-token logits for every position."""
        return self.head(self(input_ids))

    def loss(
        self, input_ids: Tensor, targets: Tensor, *, reduction: Reduction = "mean", z_loss: float = 0.0
    ) -> Float[Tensor, "..."]:
        """Compute the cross-entropy against `targets`, which the caller must have shifted; see `Head.loss`."""
        return self.head.loss(self(input_ids), targets, reduction=reduction, z_loss=z_loss)

    @torch.no_grad()
    def generate(
        self,
        ids: Tensor,
        n: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Int[Tensor, "B T_out"]:
        """Append `n` sampled ids, each given the last `block_size` ids. Temperature 0 takes the most likely id."""
        was_training = self.training
        self.eval()
        try:
            for _ in range(n):
                hidden_BTD = self(ids[:, -self.config.block_size :])
                logits_BV = self.head(hidden_BTD[:, -1]).float()
                if self.embeddings.padding_idx is not None:  # never a target, so its logit was not trained
                    logits_BV[:, self.embeddings.padding_idx] = -math.inf
                ids = torch.cat((ids, sample(logits_BV, temperature, top_k, generator).to(ids.dtype)), dim=1)
        finally:
            self.train(was_training)
        return ids


def make_norm(config: DecoderConfig) -> nn.Module:
    """Return a LayerNorm for gpt, or an RMSNorm for llama."""
    return (nn.LayerNorm if config.architecture == "gpt" else nn.RMSNorm)(config.n_embd, eps=config.norm_eps)


def sample(
    logits_BV: Float[Tensor, "B V"], temperature: float, top_k: int | None, generator: torch.Generator | None
) -> Int[Tensor, "B 1"]:
    """Sample one id per sequence from the `top_k` most likely ids, or from all."""
    if temperature == 0:
        return logits_BV.argmax(-1, keepdim=True)
    candidates_BC = None
    if top_k is not None:
        logits_BV, candidates_BC = logits_BV.topk(min(top_k, logits_BV.shape[-1]))
    # The maximum is subtracted before dividing, so a tiny temperature gives -inf instead of inf - inf.
    logits_BV = (logits_BV - logits_BV.amax(-1, keepdim=True)) / temperature
    sampled_B1 = torch.multinomial(logits_BV.softmax(-1), 1, generator=generator)
    return sampled_B1 if candidates_BC is None else candidates_BC.gather(1, sampled_B1)
