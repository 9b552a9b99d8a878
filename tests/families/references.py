"""References: tiny random models of `transformers`, at least one per family, and the input of their first block.

A `Case` names a config in one of its published spellings; `Reference` builds the model, copies its input weights into
ours, and captures what enters its first block. Every other model type is compared by survey.py.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, AutoModel, PreTrainedConfig

from inlayer.embeddings import Embeddings
from tests.families.capture import capture
from tests.families.survey import cos_sin

TINY = {
    "vocab_size": 99,
    "num_hidden_layers": 2,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
SMALL_EXPERTS = {
    "num_local_experts": 2,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 16,
}
DEEPSEEK = {
    "n_routed_experts": 2, "num_experts_per_tok": 1, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "v_head_dim": 16, "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
}  # fmt: skip
KIMI_YARN = {
    "type": "yarn", "beta_fast": 1.0, "beta_slow": 1.0, "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
}  # fmt: skip
DEEPSEEK_YARN = KIMI_YARN | {"beta_fast": 32, "beta_slow": 1, "factor": 40}
LLAMA31 = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}  # fmt: skip
LONGROPE = {
    "type": "longrope",
    "short_factor": [1.0 + i / 8 for i in range(8)],
    "long_factor": [1.0 + i for i in range(8)],
}
PHIMOE = {
    "rope_scaling": LONGROPE | {"short_mscale": 1.1, "long_mscale": 1.3, "original_max_position_embeddings": 4096},
    "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A model type with settings, written as in a config.json."""

    name: str
    model_type: str
    settings: dict[str, Any] = field(default_factory=dict)
    ours: str | None = None  # our model type, where transformers has none of its own (kimi_k2)
    longest: int = 40  # the largest position to ask for

    @property
    def config_json(self) -> dict[str, Any]:
        """The contents of the config file, in the spelling of this case."""
        sizes = {"hidden_size": 64, "max_position_embeddings": 64}
        return copy.deepcopy({"model_type": self.ours or self.model_type} | TINY | sizes | self.settings)


def _rotary_cases() -> list[Case]:
    heads = {"head_dim": 16}
    return [
        Case("llama", "llama"),
        Case("llama-1", "llama", {"rms_norm_eps": 1e-6, "pad_token_id": -1}),
        Case("llama-3", "llama", {"rope_theta": 500000.0, "max_position_embeddings": 8192}, longest=8191),
        Case("llama-3.1", "llama", {"rope_theta": 5e5, "rope_scaling": LLAMA31, "max_position_embeddings": 131072}, longest=131071),
        Case("llama-3.2", "llama", {"rope_parameters": LLAMA31 | {"factor": 32.0, "rope_theta": 5e5}, "head_dim": 8, "max_position_embeddings": 131072, "tie_word_embeddings": True}, longest=100_000),
        Case("llama-linear", "llama", {"rope_scaling": {"type": "linear", "factor": 4.0}}, longest=255),
        Case("llama-dynamic-short", "llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
        Case("llama-dynamic-long", "llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, longest=200),
        Case("llama-yarn", "llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, "max_position_embeddings": 256}, longest=255),
        Case("llama-yarn-attention-factor", "llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.7, "original_max_position_embeddings": 64}}),
        Case("arcee", "arcee"),
        Case("mistral", "mistral", {"rope_theta": 1e6, "head_dim": 32}),
        Case("mixtral", "mixtral", SMALL_EXPERTS),
        Case("qwen2", "qwen2", {"rope_theta": 1000000.0, "max_position_embeddings": 32768}, longest=32767),
        Case("qwen2-yarn", "qwen2", {"rope_theta": 1e6, "max_position_embeddings": 131072, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}, longest=131071),
        Case("qwen2_moe", "qwen2_moe", SMALL_EXPERTS | {"shared_expert_intermediate_size": 16}),
        Case("qwen3", "qwen3", {"head_dim": 32, "rope_theta": 1e6}),
        Case("qwen3_moe", "qwen3_moe", SMALL_EXPERTS | heads),
        Case("gemma", "gemma", heads),
        Case("gemma2", "gemma2", heads | {"final_logit_softcapping": 30.0}),
        Case("gemma3_text-old", "gemma3_text", heads | {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "num_hidden_layers": 6, "max_position_embeddings": 131072}, longest=100_000),
        Case("gemma3_text-type", "gemma3_text", heads | {"rope_scaling": {"factor": 8.0, "type": "linear"}, "num_hidden_layers": 6}),
        Case("gemma3_text-new", "gemma3_text", heads | {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}, "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}, "num_hidden_layers": 6}),
        Case("phi", "phi", {"partial_rotary_factor": 0.5}),
        Case("phi3", "phi3"),
        Case("phi3-longrope-short", "phi3", {"rope_scaling": LONGROPE, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096}, longest=4095),
        Case("phi3-longrope-long", "phi3", {"rope_scaling": LONGROPE, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096}, longest=100_000),
        Case("phi3-su", "phi3", {"rope_scaling": LONGROPE | {"type": "su", "original_max_position_embeddings": 4096}, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096}),
        Case("phimoe-longrope-short", "phimoe", SMALL_EXPERTS | PHIMOE, longest=4095),
        Case("phimoe-longrope-long", "phimoe", SMALL_EXPERTS | PHIMOE, longest=100_000),
        Case("gpt_oss", "gpt_oss", SMALL_EXPERTS | heads | {"max_position_embeddings": 131072, "rope_theta": 150000, "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 4096}}, longest=131071),
        Case("olmo", "olmo"),
        Case("olmo2", "olmo2", {"rope_theta": 5e5}),
        Case("cohere", "cohere", {"logit_scale": 0.25, "rope_theta": 8e6}),
        Case("cohere2", "cohere2", heads),
        Case("glm", "glm", heads | {"partial_rotary_factor": 0.5}),
        Case("glm4", "glm4", heads | {"partial_rotary_factor": 0.5}),
        Case("glm4_moe", "glm4_moe", heads | DEEPSEEK | {"partial_rotary_factor": 0.5, "n_shared_experts": 1}),
        Case("deepseek_v3", "deepseek_v3", DEEPSEEK | {"qk_rope_head_dim": 64, "rope_theta": 10000, "rope_scaling": DEEPSEEK_YARN, "max_position_embeddings": 163840}, longest=163839),
        Case("kimi_k2", "deepseek_v3", DEEPSEEK | {"qk_rope_head_dim": 64, "rope_theta": 50000.0, "rope_scaling": KIMI_YARN, "max_position_embeddings": 131072}, ours="kimi_k2", longest=131071),
        Case("gpt_neox", "gpt_neox", {"rotary_pct": 0.25, "rotary_emb_base": 20000}),
        Case("gpt_neox-new", "gpt_neox", {"rope_parameters": {"rope_type": "default", "rope_theta": 3e4, "partial_rotary_factor": 0.5}}),
        Case("stablelm", "stablelm"),
        Case("starcoder2", "starcoder2", {"rope_theta": 1e5}),
        Case("granite", "granite", {"embedding_multiplier": 12.0, "logits_scaling": 8.0}),
        Case("nemotron", "nemotron"),
        Case("helium", "helium", heads),
        Case("seed_oss", "seed_oss", heads),
        Case("smollm3", "smollm3"),
        Case("falcon", "falcon", {"new_decoder_architecture": True}),
        Case("olmo3-yarn", "olmo3", {"rope_theta": 5e5, "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8}}, longest=63),
        Case("deepseek_v2-yarn", "deepseek_v2", DEEPSEEK | {"qk_rope_head_dim": 16, "rope_scaling": DEEPSEEK_YARN, "max_position_embeddings": 163840}, longest=163839),
        Case("hunyuan-alpha", "hunyuan_v1_dense", heads | {"rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}}),
    ]  # fmt: skip


CASES = [
    Case("gpt2", "gpt2"),
    Case("gpt_bigcode", "gpt_bigcode"),
    Case("gpt_neo", "gpt_neo", {"attention_types": [[["global", "local"], 1]], "num_layers": 2}),
    Case("bert", "bert"),
    Case("distilbert", "distilbert", {"n_layers": 2, "hidden_dim": 32}),
    Case("electra", "electra", {"embedding_size": 24}),
    Case("electra-wide", "electra", {"embedding_size": 64}),
    Case("roberta", "roberta", {"pad_token_id": 1}),
    Case("xlm-roberta", "xlm-roberta", {"pad_token_id": 1}),
    Case("camembert", "camembert", {"pad_token_id": 1}),
    Case("mpnet", "mpnet", {"pad_token_id": 1}),
    Case("albert", "albert", {"embedding_size": 24}),
    Case("albert-wide", "albert", {"embedding_size": 64}),
    Case("opt", "opt", {"ffn_dim": 32, "word_embed_proj_dim": 64}),
    Case("opt-projected", "opt", {"ffn_dim": 32, "word_embed_proj_dim": 24}),
    Case("bloom", "bloom", {"n_layer": 2, "layer_norm_epsilon": 1e-3}),
    Case("t5", "t5", {"d_ff": 32, "d_kv": 16, "num_layers": 2}),
    Case("mt5", "mt5", {"d_ff": 32, "d_kv": 16, "num_layers": 2}),
    Case("umt5", "umt5", {"d_ff": 32, "d_kv": 16, "num_layers": 2}),
    *_rotary_cases(),
]


class Reference:
    """A transformers model with random weights, and our layer with the same weights."""

    def __init__(self, case: Case, dtype: torch.dtype) -> None:
        self.case, self.dtype = case, dtype
        self.config = reference_config(case)
        torch.manual_seed(0)
        # Built in its dtype, as loading a checkpoint does; `.to(bfloat16)` afterwards would also round the angles.
        model = AutoModel.from_config(self.config, dtype=dtype, attn_implementation="eager").eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_()
        self.model: nn.Module = model.encoder if model.config.model_type.endswith("t5") else model
        self.table: nn.Embedding = model.get_input_embeddings()

    def ours(self, config: object | None = None) -> Embeddings:
        """Our layer, built from the config file, with the reference's weights."""
        layer = Embeddings.from_config(self.case.config_json if config is None else config, dtype=self.dtype).eval()
        layer.load_state_dict(self._our_weights())  # strict: a weight too many or too few fails here
        return layer

    def _our_weights(self) -> dict[str, Tensor]:
        names = {
            "position_embedding": ("wpe", "position_embeddings", "embed_positions"),
            "token_type_embedding": ("token_type_embeddings",),
            "norm": ("embeddings.LayerNorm", "word_embeddings_layernorm"),
            "projection": ("embedding_hidden_mapping_in", "embeddings_project", "project_in"),
        }
        weights = {"token_embedding.weight": self.table.weight.detach()}
        for name, module in self.model.named_modules():
            for ours, theirs in names.items():
                if name.endswith(theirs) and module is not None:
                    weights |= {f"{ours}.{key}": value for key, value in module.state_dict().items()}
        return weights

    def run(self, **inputs: Any) -> tuple[Tensor, dict[str | None, tuple[Tensor, Tensor]]]:
        """The input of the first block, and cos and sin per layer type (None if all layers share them)."""
        seen = capture(self.model, **inputs)
        return seen.hidden, {table.layer_type: cos_sin(table.output) for table in seen.tables}


def reference_config(case: Case) -> PreTrainedConfig:
    """The config as transformers reads it from the file."""
    config_json = case.config_json | {"model_type": case.model_type}
    return CONFIG_MAPPING[case.model_type].from_dict(config_json)
