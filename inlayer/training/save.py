"""Save a decoder as a folder that `transformers` opens, and load it back.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> logits
- gpt is saved as GPT2LMHeadModel, llama as LlamaForCausalLM: config.json, model.safetensors and tokenizer files
- GPT-2 stores its projections transposed; LLaMA stores q, k, v and gate, up separately
- sinusoidal positions are stored as learned ones, since transformers' GPT-2 has no others. The config's `inlayer` entry
  records what they are; load_decoder checks that the values are still sinusoidal
- `input_scale` and `output_scale` have no field in either family and are multiplied into the table and the last norm.
  Hidden states stay bit-equal, logits equal up to rounding, and a loaded decoder has scales of 1
- `soft_cap` and `input_norm` cannot be expressed this way; `check_savable` rejects them
- a tied model stores its table once and no head
- elsewhere: training states, which keep the decoder's own names and every bit (state.py)
Tested against transformers, tied and untied, in tests/training/test_save.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from inlayer.checkpoint.open import open_store
from inlayer.checkpoint.store import Store
from inlayer.errors import CheckpointError, ConfigError
from inlayer.families import describe
from inlayer.families.fields import Fields
from inlayer.families.fields import short as shown
from inlayer.files import write_atomic
from inlayer.positions import Angles, SinusoidalPositions, sinusoidal_encoding
from inlayer.tensors import to_tensor
from inlayer.tokenizers import ByteTokenizer
from inlayer.training.atomic_folder import replace_folder, write_tensors
from inlayer.training.decoder import Decoder, DecoderConfig
from inlayer.training.tokenizer_files import tokenizer_files

__all__ = ["check_savable", "load_decoder", "save_decoder", "write_decoder"]

CLASSES = {"gpt": "GPT2LMHeadModel", "llama": "LlamaForCausalLM"}
TABLE, POSITIONS = "embeddings.token_embedding.weight", "embeddings.position_embedding.weight"
LAST_NORM, HEAD = "norm", "head.weight"
WEIGHTS = "model.safetensors"

# Config fields for which the decoder supports only transformers' default.
SUPPORTED: dict[str, dict[str, Any]] = {
    "gpt2": {
        "activation_function": "gelu_new",
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
    },
    "llama": {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False},
}


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """How the file stores a tensor of the decoder: under one name, split by rows into several, or transposed."""

    names: tuple[str, ...]
    rows: tuple[int, ...] = ()
    transposed: bool = False

    def to_file(self, tensor: Tensor) -> dict[str, Tensor]:
        parts = torch.split(tensor, list(self.rows)) if self.rows else (tensor.T if self.transposed else tensor,)
        return {name: part.contiguous() for name, part in zip(self.names, parts, strict=True)}

    def shapes(self, shape: torch.Size) -> dict[str, tuple[int, ...]]:
        """Expected shape of each name in a file, for a tensor of this shape."""
        sizes = [(rows, *shape[1:]) for rows in self.rows] or [
            tuple(reversed(shape)) if self.transposed else tuple(shape)
        ]
        return dict(zip(self.names, sizes, strict=True))

    def from_file(self, store: Store) -> Tensor:
        parts = [to_tensor(store.read(name)) for name in self.names]
        if self.transposed:
            return parts[0].T.contiguous()
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def save_decoder(
    decoder: Decoder,
    folder: str | os.PathLike[str],
    *,
    tokenizer: ByteTokenizer | str | os.PathLike[str] | None = None,
    eos_id: int | None = None,
    state: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the decoder to `folder` atomically.

    An existing folder is replaced, unless it contains a file that would be lost. `tokenizer` is a ByteTokenizer, or the
    file or folder of another one; `state` is the whole state_dict of a decoder that is itself sharded or empty.
    """
    with replace_folder(folder) as new:
        write_decoder(new, decoder, tokenizer=tokenizer, eos_id=eos_id, state=state)


def write_decoder(
    folder: Path,
    decoder: Decoder,
    *,
    tokenizer: ByteTokenizer | str | os.PathLike[str] | None = None,
    eos_id: int | None = None,
    state: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the decoder's files into an existing folder, each atomically. Other files stay."""
    check_savable(decoder.config)
    state = decoder.state_dict() if state is None else state
    config = to_config(decoder.config) | {"bos_token_id": None, "eos_token_id": eos_id}
    config["dtype"] = str(state[TABLE].dtype).removeprefix("torch.")
    files = {} if tokenizer is None else tokenizer_files(tokenizer)
    files["config.json"] = (json.dumps(config, indent=2) + "\n").encode()
    for name, data in files.items():
        write_atomic(folder / name, data)
    write_tensors(folder / WEIGHTS, to_tensors(decoder.config, state), metadata={"format": "pt"})


def load_decoder(folder: str | os.PathLike[str]) -> Decoder:
    """Load a decoder from a folder that `save_decoder` wrote, or from another GPT-2 or LLaMA that it supports."""
    store = open_store(folder)
    if store.config is None:
        raise CheckpointError(f"{store.where} has no config.json, which is needed to build the decoder")
    config = from_config(store.config)
    if config.n_layer > len(store.names()):  # checked before the blocks are created
        raise CheckpointError(f"{store.where}: its config has {config.n_layer:,} blocks, but the weights are missing")
    if config.position_scheme == "sinusoidal" and not is_sinusoidal(store, config):  # fine-tuned elsewhere
        config = replace(config, positions="learned")
    decoder = Decoder(config, device="meta")
    stored = stored_tensors(config)
    check_tensors(store, config, decoder.state_dict())
    values = {name: stored[name].from_file(store) for name in decoder.state_dict()}
    decoder.load_state_dict(values, assign=True)
    if isinstance(decoder.embeddings.position_embedding, SinusoidalPositions):
        decoder.embeddings.position_embedding.to_empty(device="cpu")  # computes the encoding
    return decoder


def check_savable(config: DecoderConfig) -> None:
    """Raise ConfigError for a decoder that cannot be expressed as GPT-2 or LLaMA."""
    for name in ("soft_cap", "input_norm"):
        if getattr(config, name):
            raise ConfigError(
                f"a decoder with {name} cannot be saved for transformers: {CLASSES[config.architecture]} has no {name}"
            )


# ---- tensors


def to_tensors(config: DecoderConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The decoder's tensors under transformers' names, with the scales multiplied in."""
    dtype = state[TABLE].dtype
    ours = {name: tensor.detach().cpu() for name, tensor in state.items()}
    if config.input_scale != 1.0:
        ours[TABLE] = ours[TABLE] * torch.tensor(config.input_scale, dtype=dtype)  # rounded like in the layer
    factor = config.output_scale / (config.input_scale if config.tie else 1.0)
    if factor != 1.0:
        ours |= {name: tensor * factor for name, tensor in ours.items() if name.startswith(f"{LAST_NORM}.")}
    if config.position_scheme == "sinusoidal":
        ours[POSITIONS] = sinusoids(config).to(dtype)
    stored = stored_tensors(config)
    return {key: part for name, tensor in ours.items() for key, part in stored[name].to_file(tensor).items()}


def check_tensors(store: Store, config: DecoderConfig, state: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError unless the file has exactly the tensors of this config, in the right shapes."""
    stored = stored_tensors(config)
    shapes = {key: shape for name in state for key, shape in stored[name].shapes(state[name].shape).items()}
    for name, shape in shapes.items():
        found = store.find(name).shape
        if found != shape:
            raise CheckpointError(f"{store.where}: tensor {name} has shape {shown(found)}; its config requires {shape}")
    extra = set(store.names()) - {*shapes, stored[POSITIONS].names[0] if POSITIONS in stored else ""}
    if extra:
        raise CheckpointError(f"{store.where} has an unexpected tensor {shown(min(extra))}")


def sinusoids(config: DecoderConfig) -> Tensor:
    return sinusoidal_encoding(torch.arange(config.block_size), config.n_embd, theta=config.theta)


def is_sinusoidal(store: Store, config: DecoderConfig) -> bool:
    name = stored_tensors(config)[POSITIONS].names[0]
    if store.find(name).shape != (config.block_size, config.n_embd):
        return False
    found = to_tensor(store.read(name))
    return torch.equal(found, sinusoids(config).to(found.dtype))


def stored_tensors(config: DecoderConfig) -> dict[str, StoredTensor]:
    """How each tensor that a decoder of this config may have is stored."""
    return (gpt2_tensors if config.architecture == "gpt" else llama_tensors)(config)


def gpt2_tensors(config: DecoderConfig) -> dict[str, StoredTensor]:
    tensors = {
        TABLE: StoredTensor(names=("transformer.wte.weight",)),
        POSITIONS: StoredTensor(names=("transformer.wpe.weight",)),
        HEAD: StoredTensor(names=("lm_head.weight",)),
    }
    modules = {LAST_NORM: "transformer.ln_f"}
    for block in range(config.n_layer):
        ours, theirs = f"blocks.{block}", f"transformer.h.{block}"
        modules |= {f"{ours}.attention_norm": f"{theirs}.ln_1", f"{ours}.feed_forward_norm": f"{theirs}.ln_2"}
        for mine, name in (
            ("attention.qkv", "attn.c_attn"),
            ("attention.out", "attn.c_proj"),
            ("feed_forward.up", "mlp.c_fc"),
            ("feed_forward.down", "mlp.c_proj"),
        ):
            tensors[f"{ours}.{mine}.weight"] = StoredTensor(names=(f"{theirs}.{name}.weight",), transposed=True)
            tensors[f"{ours}.{mine}.bias"] = StoredTensor(names=(f"{theirs}.{name}.bias",))
    for mine, name in modules.items():
        for part in ("weight", "bias"):
            tensors[f"{mine}.{part}"] = StoredTensor(names=(f"{name}.{part}",))
    return tensors


def llama_tensors(config: DecoderConfig) -> dict[str, StoredTensor]:
    tensors = {
        TABLE: StoredTensor(names=("model.embed_tokens.weight",)),
        f"{LAST_NORM}.weight": StoredTensor(names=("model.norm.weight",)),
        HEAD: StoredTensor(names=("lm_head.weight",)),
    }
    queries, keys = config.n_head * config.head_dim, config.kv_heads * config.head_dim
    for block in range(config.n_layer):
        ours, theirs = f"blocks.{block}", f"model.layers.{block}"
        for mine, names, rows in (
            ("attention_norm", ("input_layernorm",), ()),
            ("attention.qkv", tuple(f"self_attn.{one}_proj" for one in "qkv"), (queries, keys, keys)),
            ("attention.out", ("self_attn.o_proj",), ()),
            ("feed_forward_norm", ("post_attention_layernorm",), ()),
            ("feed_forward.up", ("mlp.gate_proj", "mlp.up_proj"), (config.hidden_width,) * 2),
            ("feed_forward.down", ("mlp.down_proj",), ()),
        ):
            full_names = tuple(f"{theirs}.{name}.weight" for name in names)
            tensors[f"{ours}.{mine}.weight"] = StoredTensor(names=full_names, rows=rows)
    return tensors


# ---- config.json


def to_config(config: DecoderConfig) -> dict[str, Any]:
    """The config.json for transformers."""
    common = {
        "architectures": [CLASSES[config.architecture]],
        "vocab_size": config.vocab_size,
        "initializer_range": config.init_std,
        "tie_word_embeddings": config.tie,
        "pad_token_id": None if config.padding_idx is None else config.padding_idx % config.vocab_size,
    }
    if config.architecture == "gpt":
        sinusoidal = {"inlayer": {"positions": "sinusoidal", "theta": config.theta}}
        return common | {
            "model_type": "gpt2",
            "n_embd": config.n_embd,
            "n_layer": config.n_layer,
            "n_head": config.n_head,
            "n_inner": config.hidden_width,
            "n_positions": config.block_size,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": config.norm_eps,
            **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), config.dropout),
            **(sinusoidal if config.position_scheme == "sinusoidal" else {}),
        }
    return common | {
        "model_type": "llama",
        "hidden_size": config.n_embd,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.hidden_width,
        "max_position_embeddings": config.block_size,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.theta,
        "attention_dropout": config.dropout,
        "attention_bias": False,
        "mlp_bias": False,
    }


def from_config(raw: dict[str, Any]) -> DecoderConfig:
    """DecoderConfig from the config of a GPT-2 or LLaMA; ConfigError for unsupported features."""
    spec = describe(raw)
    if spec.family not in SUPPORTED:
        raise ConfigError(f"{spec.family} models cannot be loaded as a decoder; supported: {', '.join(SUPPORTED)}")
    fields = Fields(raw, SUPPORTED[spec.family])
    for name, value in SUPPORTED[spec.family].items():
        if fields.get(name)[1] != value:
            raise ConfigError(f"the config's {name} is {shown(raw[name])}; the decoder supports only {value!r}")
    shared: dict[str, Any] = {
        "vocab_size": spec.vocab_size, "n_embd": spec.n_embd, "block_size": spec.block_size,
        "tie": spec.head.tied, "init_std": spec.init_std,
    }  # fmt: skip
    if spec.family == "gpt2":
        own = Fields(fields.mapping("inlayer"), {})
        _, positions = own.get("positions")
        return DecoderConfig(
            architecture="gpt",
            n_layer=fields.size("n_layer", "num_hidden_layers"),
            n_head=fields.size("n_head", "num_attention_heads"),
            n_hidden=fields.optional_size("n_inner"),
            positions="sinusoidal" if positions == "sinusoidal" else "learned",
            theta=own.number("theta", otherwise=10_000.0),
            norm_eps=fields.number("layer_norm_epsilon", otherwise=1e-5),
            dropout=spec.dropout,
            padding_idx=fields.index("pad_token_id"),
            **shared,
        )
    n_head = fields.size("num_attention_heads")
    angles = spec.rotary.angles if spec.rotary is not None else None
    if spec.rotary is None or not isinstance(angles, Angles) or angles.scaling is not None:
        raise ConfigError("the config scales its rotary positions; the decoder supports only unscaled ones")
    if spec.rotary.head_dim * n_head != spec.n_embd:
        raise ConfigError(f"head_dim is {spec.rotary.head_dim}; the decoder requires hidden_size / num_attention_heads")
    return DecoderConfig(
        architecture="llama",
        n_layer=fields.size("num_hidden_layers"),
        n_head=n_head,
        n_kv_head=fields.optional_size("num_key_value_heads"),
        n_hidden=fields.size("intermediate_size"),
        theta=angles.theta,
        norm_eps=fields.number("rms_norm_eps", otherwise=1e-6),
        dropout=fields.number("attention_dropout", otherwise=0.0),
        padding_idx=spec.padding_idx,
        **shared,
    )
