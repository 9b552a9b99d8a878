"""save_decoder and load_decoder: a decoder as a folder that `transformers` opens, and back.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> logits
- gpt becomes a GPT2LMHeadModel, llama a LlamaForCausalLM: config.json, model.safetensors and a tokenizer's files
- GPT-2 stores its projections transposed; LLaMA has separate ones where the decoder has one (q, k, v; gate, up)
- sinusoidal positions are stored as learned ones that hold the waves: transformers knows no other GPT-2. It could train
  them further; load_decoder knows by the config's `inlayer` entry what they are, and that they still are the waves
- `input_scale` and `output_scale` have no field in either family and are multiplied in: into the table, into the last
  norm. Hidden states stay equal to the bit, logits to rounding; who loads it finds scales of 1
- `soft_cap` and `input_norm` cannot be multiplied into anything: `check_savable` refuses them, best before training
- a tied model has its table once and no head
- not here: the state of a training run, which keeps the decoder's own names and every bit
Checked against transformers, tied and not, in tests/training/test_save.py.
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
from inlayer.errors import CheckpointError, ConfigError, InputError
from inlayer.families import describe
from inlayer.families.fields import Fields
from inlayer.families.fields import short as shown
from inlayer.positions import Angles, SinusoidalPositions, sinusoidal_encoding
from inlayer.saving import put
from inlayer.tensors import to_tensor
from inlayer.tokenizers import ByteTokenizer
from inlayer.training.decoder import Decoder, DecoderConfig
from inlayer.training.folder import put_tensors, replacing
from inlayer.training.tokenizer_files import tokenizer_files

__all__ = ["check_savable", "load_decoder", "save_decoder", "write_decoder"]

CLASSES = {"gpt": "GPT2LMHeadModel", "llama": "LlamaForCausalLM"}
TABLE, POSITIONS = "embeddings.token_embedding.weight", "embeddings.position_embedding.weight"
LAST_NORM, HEAD = "norm", "head.weight"
WEIGHTS = "model.safetensors"

# Settings of a body of which the decoder has one only: transformers' default, in both families.
ONLY: dict[str, dict[str, Any]] = {
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
class Place:
    """Where a tensor of the decoder is in the file: under one name, or cut by rows into several; or `turned`."""

    names: tuple[str, ...]
    rows: tuple[int, ...] = ()
    turned: bool = False

    def to_file(self, tensor: Tensor) -> dict[str, Tensor]:
        parts = torch.split(tensor, list(self.rows)) if self.rows else (tensor.T if self.turned else tensor,)
        return {name: part.contiguous() for name, part in zip(self.names, parts, strict=True)}

    def shapes(self, shape: torch.Size) -> dict[str, tuple[int, ...]]:
        """What each of the names must have in a file, for a tensor of this shape."""
        sizes = [(rows, *shape[1:]) for rows in self.rows] or [tuple(reversed(shape)) if self.turned else tuple(shape)]
        return dict(zip(self.names, sizes, strict=True))

    def from_file(self, store: Store) -> Tensor:
        parts = [to_tensor(store.read(name)) for name in self.names]
        if self.turned:
            return parts[0].T.contiguous()
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def save_decoder(
    decoder: Decoder,
    folder: str | os.PathLike[str],
    *,
    tokenizer: ByteTokenizer | str | os.PathLike[str] | None = None,
    bos_id: int | None = None,
    eos_id: int | None = None,
    files: Mapping[str, bytes] | None = None,
    state: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the decoder as `folder`, whole or not at all; `tokenizer` is bytes, or the file or folder it lies in.

    A folder that is there already is replaced, unless it holds a file that would be lost: `files` are further ones to
    put into it, by name. `bos_id` and `eos_id` go into the config. `state` is the whole state_dict of a decoder that
    itself holds only a shard of it.
    """
    with replacing(folder) as fresh:
        write_decoder(fresh, decoder, tokenizer=tokenizer, bos_id=bos_id, eos_id=eos_id, files=files, state=state)


def write_decoder(
    folder: Path,
    decoder: Decoder,
    *,
    tokenizer: ByteTokenizer | str | os.PathLike[str] | None = None,
    bos_id: int | None = None,
    eos_id: int | None = None,
    files: Mapping[str, bytes] | None = None,
    state: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the decoder's files into a folder that is there, each whole or not at all, and leave what else it holds."""
    check_savable(decoder.config)
    state = decoder.state_dict() if state is None else state
    config = to_config(decoder.config) | {"bos_token_id": bos_id, "eos_token_id": eos_id}
    config["dtype"] = str(state[TABLE].dtype).removeprefix("torch.")
    written = {} if tokenizer is None else tokenizer_files(tokenizer)
    written["config.json"] = (json.dumps(config, indent=2) + "\n").encode()
    for name, data in (files or {}).items():
        if name in {"", *written, WEIGHTS} or Path(name).name != name:
            raise InputError(f"{shown(name)} cannot be a further file: it is no plain name, or already taken")
        written[name] = data
    for name, data in written.items():
        put(folder / name, data)
    put_tensors(folder / WEIGHTS, to_tensors(decoder.config, state), metadata={"format": "pt"})


def load_decoder(folder: str | os.PathLike[str]) -> Decoder:
    """The decoder of a folder that `save_decoder` wrote, or of another GPT-2 or LLaMA that it could have written."""
    store = open_store(folder)
    if store.config is None:
        raise CheckpointError(f"{store.where} has no config.json; it is needed to build the decoder")
    config = from_config(store.config)
    if config.n_layer > len(store.names()):  # before a block is made for each
        raise CheckpointError(f"{store.where}: its config asks for {config.n_layer:,} blocks, which it does not hold")
    if config.position_scheme == "sinusoidal" and not holds_waves(store, config):  # trained further, elsewhere
        config = replace(config, positions="learned")
    decoder = Decoder(config, device="meta")
    places = to_places(config)
    check_tensors(store, config, decoder.state_dict())
    values = {name: places[name].from_file(store) for name in decoder.state_dict()}
    decoder.load_state_dict(values, assign=True)
    if isinstance(decoder.embeddings.position_embedding, SinusoidalPositions):
        decoder.embeddings.position_embedding.to_empty(device="cpu")  # which makes the waves
    return decoder


def check_savable(config: DecoderConfig) -> None:
    """Raise ConfigError for a decoder that neither GPT-2 nor LLaMA can be."""
    refused = {"soft_cap": config.soft_cap is not None, "input_norm": config.input_norm}
    for name in (name for name, there in refused.items() if there):
        raise ConfigError(
            f"a decoder with {name} cannot be saved for transformers: {CLASSES[config.architecture]} has no such thing"
        )


# ---- tensors


def to_tensors(config: DecoderConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A decoder's tensors under the names of its class in transformers, with the scales multiplied in."""
    dtype = state[TABLE].dtype
    ours = {name: tensor.detach().cpu() for name, tensor in state.items()}
    if config.input_scale != 1.0:
        ours[TABLE] = ours[TABLE] * torch.tensor(config.input_scale, dtype=dtype)  # as the layer rounds it
    factor = config.output_scale / (config.input_scale if config.tie else 1.0)
    if factor != 1.0:
        ours |= {name: tensor * factor for name, tensor in ours.items() if name.startswith(f"{LAST_NORM}.")}
    if config.position_scheme == "sinusoidal":
        ours[POSITIONS] = waves(config).to(dtype)
    places = to_places(config)
    return {stored: part for name, tensor in ours.items() for stored, part in places[name].to_file(tensor).items()}


def check_tensors(store: Store, config: DecoderConfig, state: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError unless the file holds just what a decoder of this config has, in the right shapes."""
    places = to_places(config)
    shapes = {stored: shape for name in state for stored, shape in places[name].shapes(state[name].shape).items()}
    for name, shape in shapes.items():
        found = store.find(name).shape
        if found != shape:
            raise CheckpointError(f"{store.where}: tensor {name} has shape {shown(found)}; its config asks for {shape}")
    further = set(store.names()) - {*shapes, places[POSITIONS].names[0] if POSITIONS in places else ""}
    if further:
        raise CheckpointError(f"{store.where} holds {shown(min(further))}, which a decoder of its config has not")


def waves(config: DecoderConfig) -> Tensor:
    return sinusoidal_encoding(torch.arange(config.block_size), config.n_embd, theta=config.theta)


def holds_waves(store: Store, config: DecoderConfig) -> bool:
    name = to_places(config)[POSITIONS].names[0]
    if store.find(name).shape != (config.block_size, config.n_embd):
        return False
    found = to_tensor(store.read(name))
    return torch.equal(found, waves(config).to(found.dtype))


def to_places(config: DecoderConfig) -> dict[str, Place]:
    """Every tensor a decoder of this config may have, and where it is in the file."""
    return (gpt2_places if config.architecture == "gpt" else llama_places)(config)


def gpt2_places(config: DecoderConfig) -> dict[str, Place]:
    places = {
        TABLE: Place(names=("transformer.wte.weight",)),
        POSITIONS: Place(names=("transformer.wpe.weight",)),
        HEAD: Place(names=("lm_head.weight",)),
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
            places[f"{ours}.{mine}.weight"] = Place(names=(f"{theirs}.{name}.weight",), turned=True)
            places[f"{ours}.{mine}.bias"] = Place(names=(f"{theirs}.{name}.bias",))
    for mine, name in modules.items():
        for part in ("weight", "bias"):
            places[f"{mine}.{part}"] = Place(names=(f"{name}.{part}",))
    return places


def llama_places(config: DecoderConfig) -> dict[str, Place]:
    places = {
        TABLE: Place(names=("model.embed_tokens.weight",)),
        f"{LAST_NORM}.weight": Place(names=("model.norm.weight",)),
        HEAD: Place(names=("lm_head.weight",)),
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
            stored = tuple(f"{theirs}.{name}.weight" for name in names)
            places[f"{ours}.{mine}.weight"] = Place(names=stored, rows=rows)
    return places


# ---- config.json


def to_config(config: DecoderConfig) -> dict[str, Any]:
    """The config.json of the decoder's class in transformers."""
    both = {
        "architectures": [CLASSES[config.architecture]],
        "vocab_size": config.vocab_size,
        "initializer_range": config.init_std,
        "tie_word_embeddings": config.tie,
        "pad_token_id": None if config.padding_idx is None else config.padding_idx % config.vocab_size,
    }
    if config.architecture == "gpt":
        sinusoidal = {"inlayer": {"positions": "sinusoidal", "theta": config.theta}}
        return both | {
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
    return both | {
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
    """The decoder of a GPT-2's or LLaMA's config; what the decoder cannot do is refused."""
    spec = describe(raw)
    if spec.family not in ONLY:
        raise ConfigError(f"a {spec.family} is no decoder of inlayer's; it reads {' and '.join(ONLY)}")
    fields = Fields(raw, ONLY[spec.family])
    for name, value in ONLY[spec.family].items():
        if fields.get(name)[1] != value:
            raise ConfigError(f"the config's {name} is {shown(raw[name])}; the decoder knows {value!r} only")
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
        raise ConfigError("the config stretches its rotary positions; the decoder has plain ones only")
    if spec.rotary.head_dim * n_head != spec.n_embd:
        raise ConfigError(f"the config's head_dim is {spec.rotary.head_dim}; the decoder's is hidden_size / heads")
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
