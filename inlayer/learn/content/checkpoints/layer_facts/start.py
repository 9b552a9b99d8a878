"""What a config says of the input layer."""

from typing import Any

# What is usual in a family: is the head tied to the table, and what positions does it have?
FAMILIES = {
    "bloom": {"tied": True, "positions": "none"},
    "deepseek_v3": {"tied": False, "positions": "rotary"},
    "gemma3_text": {"tied": True, "positions": "rotary"},
    "gpt2": {"tied": True, "positions": "learned"},
    "kimi_k2": {"tied": False, "positions": "rotary"},
    "llama": {"tied": False, "positions": "rotary"},
    "t5": {"tied": True, "positions": "none"},
}


def layer_facts(config: dict[str, Any]) -> dict[str, Any]:
    """vocab_size, n_embd, tied and positions of a model, from its config.json."""
    # your code
    return {}
