"""Task layer_facts: read the input layer's config."""

from typing import Any

# Defaults of each family: is the head tied to the table, and which positions are used?
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
    """Return vocab_size, n_embd, tied, and positions of a model from its config.json."""
    # write your code here
    return {}
