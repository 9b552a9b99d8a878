"""Save a decoder as a folder that `transformers` opens, and load it back.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> logits
- gpt is saved as GPT2LMHeadModel, llama as LlamaForCausalLM: config.json, model.safetensors, and tokenizer files
- GPT-2 stores its projections transposed; Llama stores q, k, and v separately, and gate and up as well
- sinusoidal positions are stored as learned ones, because transformers' GPT-2 has no other kind. The config's `inlayer`
  entry records their kind, and load_decoder checks that the values are still sinusoidal
- neither family has a field for `input_scale` and `output_scale`, so they are multiplied into the table and the last
  norm. Hidden states stay bit-identical, logits are equal up to rounding, and a loaded decoder has scales of 1
- `soft_cap` and `input_norm` cannot be expressed this way: `save_decoder` rejects them
- a tied model stores its table once and does not store a head
- a ByteTokenizer becomes a tokenizer.json without merges whose ids are the byte values. A tokenizer.json without a
  tokenizer_config.json gets one: transformers would otherwise use the class of the model family, and GPT-2's adds
  `<|endoftext|>` with an id outside the table
- see also: training states, which keep the decoder's own names and every bit (state.py)
Tested against transformers, tied and untied, in tests/training/test_export.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import Tensor

from inlayer.checkpoint.open import open_store
from inlayer.checkpoint.store import Store
from inlayer.errors import CheckpointError, ConfigError
from inlayer.families import describe
from inlayer.families.config_reader import ConfigReader, short_repr
from inlayer.files import file_errors, path_kind, write_atomic
from inlayer.positions import RopeParameters, SinusoidalPositions, sinusoidal_encoding
from inlayer.tensors import dtype_name, to_tensor
from inlayer.tokenizers import ByteTokenizer, open_tokenizer
from inlayer.tokenizers.merges import byte_alphabet
from inlayer.tokenizers.open import FILE_NAMES, SIBLINGS
from inlayer.training.config import DecoderConfig
from inlayer.training.decoder import Decoder
from inlayer.training.state import write_tensors

FAMILIES = {"gpt": ("gpt2", "GPT2LMHeadModel"), "llama": ("llama", "LlamaForCausalLM")}
TABLE, POSITIONS = "embeddings.token_embedding.weight", "embeddings.position_embedding.weight"
LAST_NORM, HEAD = "norm", "head.weight"
WEIGHTS = "model.safetensors"
TOKENIZER_FILES = (*FILE_NAMES, "vocab.json", "merges.txt", "vocab.txt")

# Modules of a block, and their names in transformers' models.
BLOCKS = {
    "gpt": {
        "attention_norm": "ln_1", "attention.qkv": "attn.c_attn", "attention.out": "attn.c_proj",
        "feed_forward_norm": "ln_2", "feed_forward.up": "mlp.c_fc", "feed_forward.down": "mlp.c_proj",
    },
    "llama": {
        "attention_norm": "input_layernorm", "attention.qkv": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
        "attention.out": "self_attn.o_proj", "feed_forward_norm": "post_attention_layernorm",
        "feed_forward.up": "mlp.gate_proj mlp.up_proj", "feed_forward.down": "mlp.down_proj",
    },
}  # fmt: skip
# Fields of config.json, and the sizes and numbers that they contain.
FIELDS = {
    "gpt": {
        "n_embd": "n_embd", "n_layer": "n_layer", "n_head": "n_head", "n_inner": "hidden_width",
        "n_positions": "block_size", "layer_norm_epsilon": "norm_eps", "embd_pdrop": "dropout",
        "attn_pdrop": "dropout", "resid_pdrop": "dropout",
    },
    "llama": {
        "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
        "num_key_value_heads": "kv_heads", "head_dim": "head_dim", "intermediate_size": "hidden_width",
        "max_position_embeddings": "block_size", "rms_norm_eps": "norm_eps", "rope_theta": "theta",
        "attention_dropout": "dropout",
    },
}  # fmt: skip
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
    """How the file stores a tensor of the decoder: as it is, transposed, or split by rows into several tensors."""

    names: tuple[str, ...]
    rows: tuple[int, ...] = ()
    transposed: bool = False

    def to_file(self, tensor: Tensor) -> dict[str, Tensor]:
        parts = torch.split(tensor, list(self.rows)) if self.rows else (tensor.T if self.transposed else tensor,)
        return {name: part.contiguous() for name, part in zip(self.names, parts, strict=True)}

    def from_file(self, store: Store) -> Tensor:
        parts = [to_tensor(store.read(name)) for name in self.names]
        if self.transposed:
            return parts[0].T.contiguous()
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def save_decoder(
    decoder: Decoder,
    folder: Path,
    *,
    tokenizer: ByteTokenizer | str | Path | None = None,
    eos_id: int | None = None,
    state: Mapping[str, Tensor] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write the decoder's files to `folder`, each atomically. Other files are kept.

    `tokenizer` is a ByteTokenizer, or the file or folder of another tokenizer. `state` is the whole state_dict of a
    decoder that is itself sharded or empty. `facts` about its training are added to the config's `inlayer` entry.
    """
    for name in ("soft_cap", "input_norm"):
        if getattr(decoder.config, name):
            model_class = FAMILIES[decoder.config.architecture][1]
            raise ConfigError(f"a decoder with {name} cannot be saved for transformers: {model_class} has no {name}")
    state = decoder.state_dict() if state is None else state
    config = to_config(decoder.config) | {"bos_token_id": None, "eos_token_id": eos_id}
    if facts:
        config["inlayer"] = {**config.get("inlayer", {}), **facts}
    config["dtype"] = dtype_name(state[TABLE].dtype)
    files = {} if tokenizer is None else tokenizer_files(tokenizer)
    files["config.json"] = (json.dumps(config, indent=2) + "\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_atomic(folder / name, data)
    write_tensors(folder / WEIGHTS, to_tensors(decoder.config, state), metadata={"format": "pt"})


def load_decoder(folder: Path) -> Decoder:
    """Load a decoder from a folder that `save_decoder` wrote, or from another GPT-2 or Llama that it supports."""
    store = open_store(folder)
    if store.config is None:
        raise CheckpointError(f"{store.source} has no config.json, which is required to build the decoder")
    config = from_config(store.config)
    if config.n_layer > len(store.names()):  # checked before the blocks are created
        raise CheckpointError(f"{store.source}: its config has {config.n_layer:,} blocks, but the weights are missing")
    if config.position_scheme == "sinusoidal" and not is_sinusoidal(
        store, config
    ):  # they were fine-tuned by another program
        config = replace(config, positions="learned")
    decoder, stored = Decoder(config, device="meta"), stored_tensors(config)
    values, known = {}, {*stored[POSITIONS].names}
    for name, tensor in decoder.state_dict().items():
        for key, part in stored[name].to_file(tensor).items():
            shape, required = store.find(key).shape, tuple(part.shape)
            if shape != required:
                message = f"tensor {key} has shape {short_repr(shape)}; its config requires {required}"
                raise CheckpointError(f"{store.source}: {message}")
            known.add(key)
        values[name] = stored[name].from_file(store)
    if extra := set(store.names()) - known:
        raise CheckpointError(f"{store.source} has an unexpected tensor {short_repr(min(extra))}")
    decoder.load_state_dict(values, assign=True)
    if isinstance(decoder.embeddings.position_embedding, SinusoidalPositions):
        decoder.embeddings.position_embedding.to_empty(device="cpu")  # computes the encoding
    return decoder


# ---- tensors


def to_tensors(config: DecoderConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the decoder's tensors under transformers' names, with the scales multiplied in."""
    dtype = state[TABLE].dtype
    scaled = {name: tensor.detach().cpu() for name, tensor in state.items()}
    if config.input_scale != 1.0:
        scaled[TABLE] = scaled[TABLE] * torch.tensor(config.input_scale, dtype=dtype)  # rounded like in the layer
    factor = config.output_scale / (config.input_scale if config.tie else 1.0)
    if factor != 1.0:
        scaled |= {name: tensor * factor for name, tensor in scaled.items() if name.startswith(f"{LAST_NORM}.")}
    if config.position_scheme == "sinusoidal":
        scaled[POSITIONS] = sinusoids(config).to(dtype)
    stored = stored_tensors(config)
    return {key: part for name, tensor in scaled.items() for key, part in stored[name].to_file(tensor).items()}


def sinusoids(config: DecoderConfig) -> Tensor:
    return sinusoidal_encoding(torch.arange(config.block_size), config.n_embd, theta=config.theta)


def is_sinusoidal(store: Store, config: DecoderConfig) -> bool:
    name = stored_tensors(config)[POSITIONS].names[0]
    if store.find(name).shape != (config.block_size, config.n_embd):
        return False
    values = to_tensor(store.read(name))
    return torch.equal(values, sinusoids(config).to(values.dtype))


def stored_tensors(config: DecoderConfig) -> dict[str, StoredTensor]:
    """Return how each possible tensor of a decoder with this config is stored."""
    is_gpt = config.architecture == "gpt"
    root, table, layers, norm = (
        ("transformer", "wte", "h", "ln_f") if is_gpt else ("model", "embed_tokens", "layers", "norm")
    )
    modules: dict[str, tuple[str, ...]] = {LAST_NORM: (f"{root}.{norm}",)}
    for block in range(config.n_layer):
        for module, names in BLOCKS[config.architecture].items():
            modules[f"blocks.{block}.{module}"] = tuple(f"{root}.{layers}.{block}.{name}" for name in names.split())
    keys = config.kv_heads * config.head_dim
    rows = {"qkv": (config.n_head * config.head_dim, keys, keys), "up": (config.hidden_width,) * 2}
    tensors = {TABLE: f"{root}.{table}.weight", POSITIONS: f"{root}.wpe.weight", HEAD: "lm_head.weight"}
    stored = {name: StoredTensor(names=(in_file,)) for name, in_file in tensors.items()}
    for module, parts in modules.items():
        for part in ("weight", "bias"):
            stored[f"{module}.{part}"] = StoredTensor(
                names=tuple(f"{name}.{part}" for name in parts),
                rows=rows[module.rpartition(".")[2]] if len(parts) > 1 else (),
                transposed=is_gpt and part == "weight" and not module.endswith("norm"),
            )
    return stored


# ---- config.json


def to_config(config: DecoderConfig) -> dict[str, Any]:
    """Return the config.json for transformers."""
    family, name = FAMILIES[config.architecture]
    values = {
        "model_type": family,
        "architectures": [name],
        "vocab_size": config.vocab_size,
        "initializer_range": config.init_std,
        "tie_word_embeddings": config.tie,
        "pad_token_id": None if config.padding_idx is None else config.padding_idx % config.vocab_size,
        **{field: getattr(config, attribute) for field, attribute in FIELDS[config.architecture].items()},
        **SUPPORTED[family],
    }
    if config.position_scheme == "sinusoidal":
        values["inlayer"] = {"positions": "sinusoidal", "theta": config.theta}
    return values


def from_config(raw: dict[str, Any]) -> DecoderConfig:
    """Convert the config of a GPT-2 or Llama to a DecoderConfig. Raises ConfigError for unsupported features."""
    spec = describe(raw)
    if spec.family not in SUPPORTED:
        raise ConfigError(f"{spec.family} models cannot be loaded as a decoder; supported: {', '.join(SUPPORTED)}")
    fields = ConfigReader(raw, SUPPORTED[spec.family])
    for name, value in SUPPORTED[spec.family].items():
        if fields.get(name)[1] != value:
            raise ConfigError(f"the config's {name} is {short_repr(raw[name])}; the decoder supports only {value!r}")
    is_gpt = spec.family == "gpt2"
    own = ConfigReader(fields.mapping("inlayer"), {})
    n_head, positions, theta = fields.size("n_head", "num_attention_heads"), None, 10_000.0
    if is_gpt:
        positions = "sinusoidal" if own.get("positions")[1] == "sinusoidal" else "learned"
        theta = own.number("theta", default=theta)
    else:
        parameters = spec.rotary.rope_parameters if spec.rotary is not None else None
        if spec.rotary is None or not isinstance(parameters, RopeParameters) or parameters.scaling is not None:
            raise ConfigError("the config scales its rotary positions; the decoder supports only unscaled ones")
        if (head_dim := spec.rotary.head_dim) * n_head != spec.n_embd:
            raise ConfigError(f"head_dim is {head_dim}; the decoder requires hidden_size / num_attention_heads")
        theta = parameters.theta
    return DecoderConfig(
        architecture="gpt" if is_gpt else "llama",
        vocab_size=spec.vocab_size,
        n_embd=spec.n_embd,
        n_layer=fields.size("n_layer", "num_hidden_layers"),
        n_head=n_head,
        block_size=spec.block_size,  # type: ignore[arg-type]  # DecoderConfig rejects None
        n_kv_head=None if is_gpt else fields.optional_size("num_key_value_heads"),
        n_inner=fields.optional_size("n_inner") if is_gpt else fields.size("intermediate_size"),
        positions=positions,
        theta=theta,
        norm_eps=fields.number("layer_norm_epsilon", "rms_norm_eps", default=1e-5 if is_gpt else 1e-6),
        dropout=spec.dropout if is_gpt else fields.number("attention_dropout", default=0.0),
        tie=spec.head.tied,
        padding_idx=fields.index("pad_token_id"),
        init_std=spec.init_std,
    )


# ---- tokenizer files


def tokenizer_files(tokenizer: ByteTokenizer | str | Path) -> dict[str, bytes]:
    """Return the contents of a tokenizer's files by name; the tokenizer is given as its file or folder."""
    if isinstance(tokenizer, ByteTokenizer):
        files = {"tokenizer.json": byte_tokenizer_json()}
    else:
        path = Path(tokenizer)
        open_tokenizer(path)  # a damaged tokenizer is reported here, not when the saved model is opened
        folder = path if path_kind(path) == "folder" else path.parent
        names = (*(TOKENIZER_FILES if folder == path else (path.name,)), *SIBLINGS)
        with file_errors(path):
            files = {name: (folder / name).read_bytes() for name in names if path_kind(folder / name) == "file"}
        if path.suffix == ".json" and path.name in files:  # saved under a different name
            files["tokenizer.json"] = files.pop(path.name)
    if "tokenizer.json" in files:
        files.setdefault("tokenizer_config.json", b'{"tokenizer_class": "PreTrainedTokenizerFast"}\n')
    return files


def byte_tokenizer_json() -> bytes:
    """Return a byte-level BPE without merges: id 72 is the byte 72."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(byte_alphabet(), []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return str(tokenizer.to_str()).encode()
