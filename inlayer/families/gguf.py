"""What a GGUF says of a model, in the words of a config.json: the fields that `describe` reads.

GGUF metadata -> [config] -> LayerSpec -> Embeddings, Head
- sizes come from the tensors where a tensor tells them (rows and width of the table, rows of learned positions, whether
  there is a head of its own); everything else from `{architecture}.*`
- what the file leaves out is said to be absent, so that no default of a family stands in for it
- float32 values become the shortest decimal that gives the same float32: the number the config.json had
- LLaMA-3's stretched angles are stored as one divisor a channel pair (rope_freqs.weight): longrope with one list
- an architecture whose input layer is no known family gives None: its table can be read, its positions are unknown
- not here: reading the file (checkpoint/gguf.py), the families (families/table.py)
Checked against real configs and transformers in tests/families/test_gguf.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlayer.errors import ConfigError
from inlayer.families.fields import shown
from inlayer.families.table import FAMILIES

__all__ = ["ARCHITECTURES", "ROPE_FACTORS", "config_from_gguf"]

# Architectures as GGUF names them -> the family whose input layer they have. "llama" also carries Mistral, Mixtral and
# SmolLM; "bert" also RoBERTa, whose first two position rows are cut off when it is converted.
ARCHITECTURES = {
    "arcee": "arcee", "bert": "bert", "bloom": "bloom", "cohere2": "cohere2", "command-r": "cohere",
    "deepseek2": "deepseek_v3", "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3_text", "glm4": "glm4",
    "glm4moe": "glm4_moe", "gpt-oss": "gpt_oss", "gpt2": "gpt2", "gptneox": "gpt_neox", "granite": "granite",
    "granitemoe": "granite", "llama": "llama", "nemotron": "nemotron", "olmo": "olmo", "olmo2": "olmo2", "phi2": "phi",
    "phi3": "phi3", "qwen2": "qwen2", "qwen2moe": "qwen2_moe", "qwen3": "qwen3", "qwen3moe": "qwen3_moe",
    "seed_oss": "seed_oss", "smollm3": "smollm3", "stablelm": "stablelm", "starcoder": "gpt_bigcode",
    "starcoder2": "starcoder2", "t5": "t5", "t5encoder": "t5",
}  # fmt: skip

TABLE, HEAD, POSITIONS, TOKEN_TYPES = "token_embd.weight", "output.weight", "position_embd.weight", "token_types.weight"
STRETCHED, SHORT, LONG = "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"
ROPE_FACTORS = (STRETCHED, SHORT, LONG)


def config_from_gguf(
    metadata: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], factors: Mapping[str, Sequence[float]]
) -> dict[str, Any] | None:
    """The config of a model whose file has these values, tensors of these shapes and these rotary factors."""
    architecture = metadata.get("general.architecture")
    family = ARCHITECTURES.get(architecture) if isinstance(architecture, str) else None
    table = shapes.get(TABLE, ())
    if family is None or len(table) != 2:
        return None
    said = _Said(metadata, str(architecture))
    config = {
        "model_type": family,
        "vocab_size": table[0],
        "hidden_size": table[1],
        "num_attention_heads": said.get("attention.head_count"),
        "tie_word_embeddings": HEAD not in shapes,
        "pad_token_id": _padding(metadata, table[0]),
        "final_logit_softcapping": said.get("final_logit_softcapping"),
        "layer_norm_eps": said.get("attention.layer_norm_epsilon"),
        **_scales(said, family),
    }
    if FAMILIES[family].token_types:
        config["type_vocab_size"] = shapes.get(TOKEN_TYPES, (None,))[0]
    if FAMILIES[family].positions == "learned":
        config["max_position_embeddings"] = shapes[POSITIONS][0] if POSITIONS in shapes else said.need("context_length")
    if FAMILIES[family].positions == "rotary":
        config |= _rotary(said, family, table[1], factors)
    return config


class _Said:
    """The values of one architecture, each under its name without the architecture's."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self._metadata, self._architecture = metadata, architecture

    def get(self, name: str) -> Any:
        value = self._metadata.get(f"{self._architecture}.{name}")
        return _shortest(value) if isinstance(value, float) else value

    def need(self, name: str) -> int:
        value = self.get(name)
        if type(value) is not int or value < 1:
            raise ConfigError(
                f"its {self._architecture}.{name} is {shown(value)}; a whole number is needed to size the input layer"
            )
        return value


def _shortest(value: float) -> float:
    with np.errstate(over="ignore"):
        single = np.float32(value)
    return float(str(single)) if float(single) == value else value


def _padding(metadata: Mapping[str, Any], rows: int) -> int | None:
    padding = metadata.get("tokenizer.ggml.padding_token_id")
    return padding if type(padding) is int and padding < rows else None  # past the rows: none, as in llama.cpp


def _scales(said: _Said, family: str) -> dict[str, Any]:
    """One name in a GGUF, two meanings: Cohere multiplies logits by its logit_scale, Granite divides by it."""
    if family == "granite":
        return {"embedding_multiplier": said.get("embedding_scale"), "logits_scaling": said.get("logit_scale")}
    return {"logit_scale": said.get("logit_scale")}


def _rotary(said: _Said, family: str, width: int, factors: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    rotated = said.get("rope.dimension_count")
    fields: dict[str, Any] = {"max_position_embeddings": said.need("context_length")}
    rope = {"rope_theta": said.get("rope.freq_base") or 10_000.0, **_scaling(said, family, factors)}
    if family == "deepseek_v3":  # its heads have a part that turns and one that does not; only the first counts here
        fields["qk_rope_head_dim"] = said.need("rope.dimension_count")
    else:
        head = said.get("attention.key_length") or width // said.need("attention.head_count")
        fields["head_dim"] = head
        rope["partial_rotary_factor"] = _share(rotated if rotated is not None else head, head)
    if family == "phi3":  # it keeps the trained length outside the rotary settings
        fields["original_max_position_embeddings"] = said.get("rope.scaling.original_context_length")
    if family == "gemma3_text":
        nearby = {"rope_type": "default", "rope_theta": said.get("rope.freq_base_swa") or 10_000.0}
        return fields | {"rope_parameters": {"full_attention": rope, "sliding_attention": nearby}}
    return fields | {"rope_parameters": rope}


def _share(rotated: object, head: object) -> float:
    """The share of a head that turns, such that share x head is the number of channels again, not a hair below."""
    if type(rotated) is not int or type(head) is not int or not 1 <= rotated <= head:
        raise ConfigError(f"it turns {shown(rotated)} channels of a head of {shown(head)}")
    share = rotated / head
    return share if int(share * head) == rotated else math.nextafter(share, 1.0)


def _scaling(said: _Said, family: str, factors: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    kind = said.get("rope.scaling.type")
    original = said.get("rope.scaling.original_context_length")
    trained = {"original_max_position_embeddings": original} if original else {}
    if SHORT in factors and LONG in factors:
        return {
            "rope_type": "longrope", "short_factor": list(factors[SHORT]), "long_factor": list(factors[LONG]), **trained
        }  # fmt: skip
    if STRETCHED in factors and any(factor != 1 for factor in factors[STRETCHED]):
        divisors = list(factors[STRETCHED])
        return {"rope_type": "longrope", "short_factor": divisors, "long_factor": divisors, "attention_factor": 1.0}
    if kind in (None, "none"):
        linear = said.get("rope.scale_linear")  # an old spelling
        return {"rope_type": "default"} if linear in (None, 1) else {"rope_type": "linear", "factor": linear}
    scaling = {"rope_type": kind, "factor": said.get("rope.scaling.factor"), **trained}
    if kind == "yarn":
        scaling |= _yarn(said, family)
    return scaling


def _yarn(said: _Said, family: str) -> dict[str, Any]:
    betas = {
        name: said.get(f"rope.scaling.yarn_{name}")
        for name in ("beta_fast", "beta_slow")
        if said.get(f"rope.scaling.yarn_{name}") is not None
    }
    if family == "gpt_oss":
        betas["truncate"] = False
    multiplier = said.get("rope.scaling.yarn_log_multiplier")
    if multiplier is None:
        return betas
    # 0.1 x mscale_all_dim; DeepSeek's mscale is not stored, being the same number in every model of that line
    mscale = _shortest(float(np.float32(multiplier * 10)))
    return betas | {"mscale": mscale, "mscale_all_dim": mscale}
