"""Saves a decoder as a folder that `transformers` and `inlayer.load` can open.

text -> ids -> rows -> (+ positions) -> hidden states -> [decoder] -> head -> logits
- gpt is saved as GPT2LMHeadModel, llama as LlamaForCausalLM: config.json, model.safetensors, and tokenizer files
- GPT-2 stores its projections transposed; Llama stores q, k, and v separately, and gate and up as well
- sinusoidal positions are stored as learned ones, because transformers' GPT-2 has no other kind. The config's `inlayer`
  entry records the original kind
- neither family has a field for `input_scale` and `output_scale`, so they are multiplied into the table and the last
  norm (`without_scales`). Hidden states stay bit-identical, and logits are equal up to rounding
- `soft_cap` and `input_norm` cannot be expressed this way: `save_decoder` rejects them
- a tied model stores its table once and does not store a head
- a ByteTokenizer becomes a tokenizer.json without merges whose ids are the byte values. A tokenizer.json without a
  tokenizer_config.json gets one: otherwise, transformers would use the model family's class, and GPT-2's class adds
  `<|endoftext|>` with an id outside the table
- see also: training states, which keep the decoder's own names and every bit (state.py)
Tested against transformers, tied and untied, in tests/training/test_export.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import Tensor

from inlayer.errors import ConfigError
from inlayer.files import file_errors, path_kind, write_atomic
from inlayer.positions import sinusoidal_encoding
from inlayer.tensors import dtype_name
from inlayer.tokenizers import ByteTokenizer, open_tokenizer
from inlayer.tokenizers.merges import byte_alphabet
from inlayer.tokenizers.open import FILE_NAMES, SIBLINGS
from inlayer.training.config import DecoderConfig
from inlayer.training.decoder import Decoder
from inlayer.training.state import write_tensors

FAMILIES = {"gpt": ("gpt2", "GPT2LMHeadModel"), "llama": ("llama", "LlamaForCausalLM")}
TABLE, POSITIONS = "embeddings.token_embedding.weight", "embeddings.position_embedding.weight"
WEIGHTS = "model.safetensors"
TOKENIZER_FILES = (*FILE_NAMES, "vocab.json", "merges.txt", "vocab.txt")

# Modules, and their names in transformers' models; in a block, the name follows the prefix in LAYERS and a number.
LAYERS = {"gpt": "transformer.h", "llama": "model.layers"}
MODULES = {
    "gpt": {
        "embeddings.token_embedding": "transformer.wte", "embeddings.position_embedding": "transformer.wpe",
        "attention_norm": "ln_1", "attention.qkv": "attn.c_attn", "attention.out": "attn.c_proj",
        "feed_forward_norm": "ln_2", "feed_forward.up": "mlp.c_fc", "feed_forward.down": "mlp.c_proj",
        "norm": "transformer.ln_f", "head": "lm_head",
    },
    "llama": {
        "embeddings.token_embedding": "model.embed_tokens",
        "attention_norm": "input_layernorm", "attention.qkv": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
        "attention.out": "self_attn.o_proj", "feed_forward_norm": "post_attention_layernorm",
        "feed_forward.up": "mlp.gate_proj mlp.up_proj", "feed_forward.down": "mlp.down_proj",
        "norm": "model.norm", "head": "lm_head",
    },
}  # fmt: skip
# Fields of config.json, and the sizes and numbers that they contain.
CONFIG_FIELDS = {
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
# Config fields that are the same for every decoder.
FIXED: dict[str, dict[str, Any]] = {
    "gpt": {
        "activation_function": "gelu_new",
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
    },
    "llama": {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False},
}


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


# ---- tensors


def without_scales(config: DecoderConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return an equivalent decoder's state with scales of 1: they are multiplied into the table and the last norm."""
    scaled = {name: tensor.detach().cpu() for name, tensor in state.items()}
    if config.input_scale != 1.0:
        scale = torch.tensor(config.input_scale, dtype=scaled[TABLE].dtype)  # rounded as in the layer
        scaled[TABLE] = scaled[TABLE] * scale
    factor = config.output_scale / (config.input_scale if config.tie else 1.0)
    if factor != 1.0:
        scaled |= {name: tensor * factor for name, tensor in scaled.items() if name.startswith("norm.")}
    return scaled


def to_tensors(config: DecoderConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the decoder's tensors under transformers' names, with the scales multiplied in."""
    tensors = without_scales(config, state)
    if config.position_scheme == "sinusoidal":
        encoding_TD = sinusoidal_encoding(torch.arange(config.block_size), config.n_embd, theta=config.theta)
        tensors[POSITIONS] = encoding_TD.to(tensors[TABLE].dtype)
    return {key: part for name, tensor in tensors.items() for key, part in rename(config, name, tensor).items()}


def rename(config: DecoderConfig, name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Return the file's tensors for one of the decoder's: unchanged, transposed, or split by rows."""
    module, _, kind = name.rpartition(".")
    prefix = ""
    if in_block := module.startswith("blocks."):
        _, block, module = module.split(".", 2)
        prefix = f"{LAYERS[config.architecture]}.{block}."
    targets = MODULES[config.architecture][module].split()
    parts: Sequence[Tensor] = (tensor,)
    if len(targets) > 1:
        keys = config.kv_heads * config.head_dim
        rows = {"attention.qkv": [config.n_embd, keys, keys], "feed_forward.up": [config.hidden_width] * 2}
        parts = torch.split(tensor, rows[module])
    elif config.architecture == "gpt" and in_block and tensor.dim() == 2:
        parts = (tensor.T,)
    return {f"{prefix}{target}.{kind}": part.contiguous() for target, part in zip(targets, parts, strict=True)}


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
        **{field: getattr(config, attribute) for field, attribute in CONFIG_FIELDS[config.architecture].items()},
        **FIXED[config.architecture],
    }
    if config.position_scheme == "sinusoidal":
        values["inlayer"] = {"positions": "sinusoidal", "theta": config.theta}
    return values


# ---- tokenizer files


def tokenizer_files(tokenizer: ByteTokenizer | str | Path) -> dict[str, bytes]:
    """Return the contents of a tokenizer's files by name; the tokenizer is given as its file or folder."""
    if isinstance(tokenizer, ByteTokenizer):
        files = {"tokenizer.json": byte_tokenizer_json()}
    else:
        path = Path(tokenizer)
        open_tokenizer(path)  # reports a damaged tokenizer now, not when the saved model is opened
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
