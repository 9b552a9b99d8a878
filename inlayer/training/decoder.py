"""The decoder: a small body between the input layer and the head, to learn embeddings with.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> logits
- two architectures, each as its family has it: "gpt" (GPT-2: LayerNorm, GELU in its tanh form, biases, positions added
  to the rows) and "llama" (rotary positions, RMSNorm, SwiGLU, grouped-query attention, no biases)
- queries, keys and values come from one projection, and so do gate and up of a SwiGLU: fewer, larger matrix multiplies
- weights are drawn as the families draw them, N(0, init_std) and GPT-2's projections back into the residual stream by
  1 / sqrt(2 n_layer); with a seed the global random state is neither read nor moved
- dropout where the families have it: gpt after the layer, in the attention and after each half of a block; llama in the
  attention only
- `input_scale`, `output_scale`, `soft_cap` and `input_norm` are no part of either family: they are cures to try where
  table and head are tied
- not here: caching of keys and values, training (train/), files (training/save.py)
Checked against transformers' LlamaForCausalLM and GPT2LMHeadModel in tests/training/test_save.py; rules in
tests/training/test_decoder.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from inlayer.embeddings import Embeddings
from inlayer.errors import ConfigError, InputError, ShapeError
from inlayer.head import Head
from inlayer.positions import apply_rotary
from inlayer.shapes import check_seed, is_finite
from inlayer.tensors import check_ids

__all__ = ["Decoder", "DecoderConfig"]

# The architectures, and the positions each may have: unsaid, the first of them.
POSITIONS = {"gpt": ("learned", "sinusoidal"), "llama": ("rotary",)}
SIZES = ("vocab_size", "n_embd", "n_layer", "n_head", "block_size", "kv_heads", "hidden_width")


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """What a decoder is. Where a size is None, the property beside it says what it comes to.

    architecture  "gpt" or "llama"
    n_kv_head     heads of keys and values, each shared by n_head / n_kv_head queries (`kv_heads`; gpt: n_head)
    n_hidden      width between the two projections of a block's feed-forward half (`hidden_width`)
    positions     gpt: "learned" or "sinusoidal"; llama: "rotary" (`position_scheme`)
    theta         base of rotary and sinusoidal positions
    tie           the head reads the table
    padding_idx   a row of the table that stays zero; targets equal to it do not count, and it is never generated
    init          how the table's rows are drawn, see Embeddings; init_std is also that of all other weights
    input_scale   rows are multiplied by it (Gemma: sqrt(n_embd)), output_scale: what enters the head (T5: 1 / sqrt)
    input_norm    the family's norm before the first block, too
    """

    architecture: str
    vocab_size: int
    n_embd: int
    n_layer: int
    n_head: int
    block_size: int
    n_kv_head: int | None = None
    n_hidden: int | None = None
    positions: str | None = None
    theta: float = 10_000.0
    norm_eps: float = 1e-5
    dropout: float = 0.0
    tie: bool = False
    padding_idx: int | None = None
    init: str = "normal"
    init_std: float = 0.02
    input_scale: float = 1.0
    output_scale: float = 1.0
    soft_cap: float | None = None
    input_norm: bool = False

    def __post_init__(self) -> None:
        if self.architecture not in POSITIONS:
            raise ConfigError(f"unknown architecture {self.architecture!r}; choose one of {', '.join(POSITIONS)}")
        for name in SIZES:
            size = getattr(self, name)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ConfigError(f"{name} is {size!r}; it must be a whole number of at least 1")
        if self.n_embd % self.n_head:
            raise ConfigError(f"n_embd {self.n_embd} is not divisible by n_head {self.n_head}: heads are equally wide")
        if self.n_head % self.kv_heads:
            raise ConfigError(
                f"n_kv_head {self.kv_heads} does not divide n_head {self.n_head}: groups are equally large"
            )
        if self.architecture == "gpt" and self.kv_heads != self.n_head:
            raise ConfigError(f"n_kv_head is {self.kv_heads} and n_head {self.n_head}; only llama groups its queries")
        if self.position_scheme not in POSITIONS[self.architecture]:
            allowed = " or ".join(POSITIONS[self.architecture])
            raise ConfigError(f"positions {self.positions!r} are not for {self.architecture}, which has {allowed} ones")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout is {self.dropout}; it is a share in 0..1, and not all of it")
        if not 0 < self.norm_eps < math.inf:
            raise ConfigError(f"norm_eps is {self.norm_eps}; it is a small positive number, 1e-5 or less")
        for name in ("input_scale", "output_scale"):
            if not is_finite(getattr(self, name)) or getattr(self, name) == 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be finite and not 0 (1.0 does nothing)")

    @property
    def kv_heads(self) -> int:
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_head

    @property
    def hidden_width(self) -> int:
        """4 n_embd; a SwiGLU has three matrices for two, so llama takes 8/3 n_embd, rounded up to a multiple of 64."""
        if self.n_hidden is not None:
            return self.n_hidden
        return 4 * self.n_embd if self.architecture == "gpt" else -(-8 * self.n_embd // (3 * 64)) * 64

    @property
    def position_scheme(self) -> str:
        return POSITIONS[self.architecture][0] if self.positions is None else self.positions


class Projection(nn.Linear):
    """A linear map that draws nothing at birth: the decoder knows the rule, and nn.Linear's values would be lost."""

    def reset_parameters(self) -> None:
        """Left to the decoder."""


class Attention(nn.Module):
    """Each token looks at those before it and at itself."""

    def __init__(self, config: DecoderConfig, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.heads = (config.n_head, config.kv_heads, config.kv_heads)
        self.head_dim, self.dropout = config.head_dim, config.dropout
        biased, width = config.architecture == "gpt", sum(self.heads) * config.head_dim
        self.qkv = Projection(config.n_embd, width, bias=biased, device=device, dtype=dtype)
        self.out = Projection(config.n_embd, config.n_embd, bias=biased, device=device, dtype=dtype)

    def forward(
        self, hidden_BTD: Float[Tensor, "B T D"], rotary: tuple[Tensor, Tensor] | None
    ) -> Float[Tensor, "B T D"]:
        batch, tokens, _ = hidden_BTD.shape
        qkv_BHTK = self.qkv(hidden_BTD).view(batch, tokens, -1, self.head_dim).transpose(1, 2)
        q, k, v = qkv_BHTK.split(self.heads, dim=1)
        if rotary is not None:
            q, k = apply_rotary(q, k, *rotary)
        mixed_BHTK = functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0, enable_gqa=k.shape != q.shape
        )
        mixed: Tensor = self.out(mixed_BHTK.transpose(1, 2).flatten(2))
        return mixed


class FeedForward(nn.Module):
    """Each token by itself: wider, bent, and narrow again."""

    def __init__(self, config: DecoderConfig, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.gated, biased = config.architecture == "llama", config.architecture == "gpt"
        width = config.hidden_width
        self.up = Projection(config.n_embd, 2 * width if self.gated else width, bias=biased, device=device, dtype=dtype)
        self.down = Projection(width, config.n_embd, bias=biased, device=device, dtype=dtype)

    def forward(self, hidden_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        wide = self.up(hidden_BTD)
        if self.gated:
            gate, wide = wide.chunk(2, dim=-1)
            bent = functional.silu(gate) * wide
        else:
            bent = functional.gelu(wide, approximate="tanh")
        narrow: Tensor = self.down(bent)
        return narrow


class Block(nn.Module):
    """Attention, then feed-forward; each reads a normed copy of the stream and adds to it."""

    def __init__(self, config: DecoderConfig, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.attention_norm = make_norm(config, device, dtype)
        self.attention = Attention(config, device, dtype)
        self.feed_forward_norm = make_norm(config, device, dtype)
        self.feed_forward = FeedForward(config, device, dtype)
        self.dropout = nn.Dropout(config.dropout if config.architecture == "gpt" else 0.0)

    def forward(
        self, hidden_BTD: Float[Tensor, "B T D"], rotary: tuple[Tensor, Tensor] | None
    ) -> Float[Tensor, "B T D"]:
        hidden_BTD = hidden_BTD + self.dropout(self.attention(self.attention_norm(hidden_BTD), rotary))
        fed_BTD: Tensor = hidden_BTD + self.dropout(self.feed_forward(self.feed_forward_norm(hidden_BTD)))
        return fed_BTD


class Decoder(nn.Module):
    """A whole language model: `embeddings`, `blocks`, `norm`, `head`.

    >>> config = DecoderConfig(architecture="gpt", vocab_size=256, n_embd=8, n_layer=1, n_head=2, block_size=16)
    >>> Decoder(config, seed=0).logits(torch.tensor([[72, 105]])).shape
    torch.Size([1, 2, 256])
    """

    def __init__(
        self,
        config: DecoderConfig,
        *,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        rotary, is_gpt = config.position_scheme == "rotary", config.architecture == "gpt"
        self.embeddings = Embeddings(
            config.vocab_size,
            config.n_embd,
            config.block_size,
            positions=config.position_scheme,
            padding_idx=config.padding_idx,
            init=config.init,
            init_std=config.init_std,
            seed=seed,
            scale=config.input_scale,
            dropout=config.dropout if is_gpt else 0.0,
            head_dim=config.head_dim if rotary else None,
            theta=config.theta,
            device=device,
            dtype=dtype,
        )
        self.input_norm = make_norm(config, device, dtype) if config.input_norm else None
        self.blocks = nn.ModuleList(Block(config, device, dtype) for _ in range(config.n_layer))
        self.norm = make_norm(config, device, dtype)
        self.head = Head(
            config.n_embd,
            config.vocab_size,
            input_scale=config.output_scale,
            soft_cap=config.soft_cap,
            padding_idx=self.embeddings.padding_idx,
            init_std=config.init_std,
            device="meta",  # there it draws nothing: not from the global generator, nor rows that a tie throws away
            dtype=dtype,
        )
        table = self.embeddings.token_embedding.weight
        if config.tie:
            self.embeddings.tie(self.head)
        else:
            self.head.to_empty(device=table.device)
        if not table.is_meta:
            self._draw(None if seed is None else torch.Generator(table.device).manual_seed(check_seed(seed)))

    @torch.no_grad()
    def _draw(self, generator: torch.Generator | None) -> None:
        """All weights but the input layer's, which drew its own, and the norms', which are born as ones and zeros."""
        std = back = self.config.init_std
        if self.config.architecture == "gpt":
            back = std / math.sqrt(2 * self.config.n_layer)
        for block in self.blocks:
            assert isinstance(block, Block)
            attention, feed_forward = block.attention, block.feed_forward
            for one, spread in (
                (attention.qkv, std),
                (attention.out, back),
                (feed_forward.up, std),
                (feed_forward.down, back),
            ):
                one.weight.normal_(0.0, spread, generator=generator)
                if one.bias is not None:
                    one.bias.zero_()
        if not self.head.tied:
            self.head.weight.normal_(0.0, self.config.init_std, generator=generator)

    def forward(self, input_ids: Tensor) -> Float[Tensor, "B T D"]:
        """Hidden states after the last norm, ready for the head."""
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
        normed_BTD: Tensor = self.norm(hidden_BTD)
        return normed_BTD

    def logits(self, input_ids: Tensor) -> Float[Tensor, "B T V"]:
        """For every token, how likely each row of the vocabulary follows it."""
        logits_BTV: Tensor = self.head(self(input_ids))
        return logits_BTV

    def loss(
        self, input_ids: Tensor, targets: Tensor, *, reduction: str = "mean", z_loss: float = 0.0
    ) -> Float[Tensor, "..."]:
        """Cross entropy against the token that follows each one, as `Head.loss` counts it: the caller shifts."""
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
    ) -> Int[Tensor, "B more"]:
        """The ids and `n` more, each drawn by what the last `block_size` say; temperature 0 takes the likeliest."""
        ids = check_ids(ids, "ids")
        if ids.dim() != 2 or ids.shape[1] == 0:
            raise ShapeError(f"ids have shape {tuple(ids.shape)}; expected (batch, tokens), and one token at least")
        if n < 0 or not 0 <= temperature < math.inf or (top_k is not None and top_k < 1):
            raise InputError(
                f"n is {n}, temperature {temperature} and top_k {top_k}; none is negative, and top_k is 1 or more"
            )
        was_training = self.training
        self.eval()
        try:
            for _ in range(n):
                hidden_BTD = self(ids[:, -self.config.block_size :])
                logits_BV = self.head(hidden_BTD[:, -1]).float()
                if self.embeddings.padding_idx is not None:  # it never learned when to follow
                    logits_BV[:, self.embeddings.padding_idx] = -math.inf
                ids = torch.cat((ids, choose(logits_BV, temperature, top_k, generator).to(ids.dtype)), dim=1)
        finally:
            self.train(was_training)
        return ids


def make_norm(config: DecoderConfig, device: torch.device | str | None, dtype: torch.dtype | None) -> nn.Module:
    """The family's norm over the width."""
    kind = nn.LayerNorm if config.architecture == "gpt" else nn.RMSNorm
    return kind(config.n_embd, eps=config.norm_eps, device=device, dtype=dtype)


def choose(
    logits_BV: Float[Tensor, "B V"], temperature: float, top_k: int | None, generator: torch.Generator | None
) -> Int[Tensor, "B 1"]:
    """One id a text: among the `top_k` likeliest, or among all."""
    if temperature == 0:
        return logits_BV.argmax(-1, keepdim=True)
    candidates_BC = None
    if top_k is not None:
        logits_BV, candidates_BC = logits_BV.topk(min(top_k, logits_BV.shape[-1]))
    # Divided after the largest is taken off: a tiny temperature gives -inf then, and not inf - inf.
    logits_BV = (logits_BV - logits_BV.amax(-1, keepdim=True)) / temperature
    chosen_B1 = torch.multinomial(logits_BV.softmax(-1), 1, generator=generator)
    return chosen_B1 if candidates_BC is None else candidates_BC.gather(1, chosen_B1)
