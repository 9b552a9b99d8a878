"""Assumes that whatever a class could tie is tied."""

from typing import Any

TIED_WEIGHTS_KEYS = {"kimi_k2": ["lm_head.weight"], "deepseek_v3": ["lm_head.weight"], "gpt2": ["lm_head.weight"]}


def layer_facts(config: dict[str, Any]) -> dict[str, Any]:
    return {
        "vocab_size": config["vocab_size"],
        "n_embd": config["hidden_size"],
        "tied": config["model_type"] in TIED_WEIGHTS_KEYS,
        "positions": "rotary",
    }
