"""Names of an input layer's tensors in every family's files, and rules for choosing among several.

tensor names -> [parts of the layer] -> Embeddings, Head
- a table is first searched for under its usual names, in order of preference, then by the end of its name
- tensors inside a block do not belong to the input layer: DeepSeek-V3 has a second table for multi-token prediction at
  `model.layers.61.embed_tokens.weight`. The same is true of tensors in a vision or audio tower
Tested on checkpoints that transformers wrote in tests/checkpoint/test_parity.py and in
tests/families/test_tensor_names.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Literal, TypeAlias

# Prefixes of the text model in a larger model; a checkpoint saved without a head has no prefix.
TEXT_MODELS = (
    "model.", "", "transformer.", "model.language_model.", "language_model.model.", "language_model.", "model.encoder.",
    "encoder.", "model.decoder.", "decoder.", "gpt_neox.", "bert.", "roberta.", "distilbert.", "electra.", "albert.",
    "mpnet.", "model.text_model.", "text_model.", "model.model.", "backbone.",
    "model.local_encoder.", "local_encoder.",
)  # fmt: skip

# fmt: off
TABLE_ENDS = (  # T5's `shared` before the copies in its encoder and decoder; `token_embd` is GGUF's
    "shared.weight", "embed_tokens.weight", "wte.weight", "embeddings.word_embeddings.weight", "word_embeddings.weight",
    "embed_in.weight", "tok_embeddings.weight", "token_embd.weight", "embeddings.weight", "embedding.weight",
    "token_embedding.weight", "tokens_embed.weight", "word_embedding.weight", "embeddings",
    "embed.weight",
)
HEAD_ENDS = (  # `output` is the name in GGUF and in the original Llama files
    "lm_head.weight", "embed_out.weight", "cls.predictions.decoder.weight", "lm_head.decoder.weight",
    "predictions.decoder.weight", "vocab_projector.weight", "generator_lm_head.weight", "output.weight", "head.weight",
    "lm_head.out_proj.weight", "head.decoder.weight", "lm_loss.weight", "pred_layer.proj.weight",
)

TABLES: tuple[str, ...] = tuple(prefix + end for end in TABLE_ENDS for prefix in TEXT_MODELS)
HEAD_TENSORS: tuple[str, ...] = tuple(
    prefix + end for end in HEAD_ENDS for prefix in ("", "model.", "language_model.", "model.language_model.")
)

_NORMS = (  # gamma and beta are TensorFlow's names, in old files
    "embeddings.LayerNorm", "word_embeddings_layernorm", "token_embd_norm", "layernorm_embedding", "embeddings.norm",
    "embed_norm", "layer_norm_emb", "embeddings.layer_norm", "emb_ln",
)

# The other parts: name in `Embeddings.state_dict()` -> how their names end in checkpoints.
TENSOR_ENDS: dict[str, tuple[str, ...]] = {
    "position_embedding.weight": (
        "wpe.weight", "position_embeddings.weight", "embed_positions.weight", "position_embd.weight",
        "positions_embed.weight",
    ),
    "position_embedding.alpha": ("lerope.alpha", "rotary_emb.alpha"),  # Mistral-Large-4
    "token_type_embedding.weight": ("token_type_embeddings.weight", "token_types.weight"),
    "norm.weight": (*(f"{norm}.weight" for norm in _NORMS), "embeddings.LayerNorm.gamma"),
    "norm.bias": (*(f"{norm}.bias" for norm in _NORMS), "embeddings.LayerNorm.beta"),
    "projection.weight": (
        "project_in.weight", "embedding_hidden_mapping_in.weight", "embeddings_project.weight",
        "embeddings.projection.weight", "embed_tokens.embedding_projection.weight",
    ),
    "projection.bias": ("embedding_hidden_mapping_in.bias", "embeddings_project.bias", "embeddings.projection.bias"),
    "per_layer_embedding.table.weight": ("embed_tokens_per_layer.weight", "per_layer_token_embd.weight"),
    "per_layer_embedding.projection.weight": ("per_layer_model_projection.weight", "per_layer_model_proj.weight"),
    "per_layer_embedding.norm.weight": ("per_layer_projection_norm.weight", "per_layer_proj_norm.weight"),
    "value_embedding.weight": ("value_embeddings.weight",),
    "head.bias": (  # if BERT has both, its decoder uses the first
        "cls.predictions.decoder.bias", "lm_head.decoder.bias", "predictions.decoder.bias", "lm_head.bias",
        "cls.predictions.bias", "predictions.bias", "vocab_projector.bias", "generator_lm_head.bias", "output.bias",
        "lm_head.out_proj.bias", "lm_loss.bias", "pred_layer.proj.bias", "final_logits_bias", "decoder.bias",
    ),
}
# fmt: on

# The learned table of relative positions, in the first block: T5's encoder before its decoder, MPNet, DeBERTa.
RELATIVE = re.compile(
    r"(?!.*decoder)(.*\.)?(block\.0\.layer\.0\.\w+\.|encoder\.)(relative_attention_bias|rel_embeddings)\.weight"
    r"|enc\.blk\.0\.attn_rel_b\.weight"
)
# The nanochat project: a value table for some blocks, and a gate. Its configs in transformers mention neither.
WITH_VALUE_TABLES = ("nanochat",)
VALUE_OF_BLOCK = re.compile(r"(?:^|\.)value_embeds\.(\d{1,4})\.weight")
SMEAR_GATES = ("smear_gate.weight", "model.smear_gate.weight")
# A number between dots is a block; vision and audio towers have their own input layers.
_TOWERS = r"vision\w*|visual\w*|audio\w*|image\w*"
TOWERS = re.compile(rf"(^|\.)({_TOWERS})\.")
OTHER_MODULES = re.compile(rf"(^|\.)(\d+|{_TOWERS}|mtp\w*)\.")
# Adapter tensors, as named by PEFT, GGUF, and kohya; none of them is a table or a head.
ADAPTER = re.compile(r"(?i)(^|\.)(lora_((embedding_)?[ab]|up|down)(?![a-z])|(?P<prompt>prompt_embeddings)(\.|$))")
# The module of a head under a different name: `foo.unembed`, `foo.to_logits`, or ModernBERT's `decoder`.
_OUTPUT = re.compile(r"unembed|(^|_)(head|out|output|logits|readout|softmax|cls|decoder)(_|$)|head$")
# Names of model classes with a head, as listed in a config's `architectures`.
WITH_HEAD = re.compile(
    r"LMHead|DoubleHeads|For(CausalLM|MaskedLM|ConditionalGeneration|PreTraining)|LM$|MTModel$|GenerationDecoder$"
)

TableRole: TypeAlias = Literal[
    "token", "position", "token_type", "head", "per_layer", "ngram", "value", "mtp", "routing"
]


def _whole(*ends: str) -> re.Pattern[str]:
    """Match names that end with whole parts: "attn_output.weight" is not an "output.weight"."""
    return re.compile(rf"(^|\.)({'|'.join(map(re.escape, ends))})$")


_COPIES: dict[TableRole, re.Pattern[str]] = {"mtp": _whole(*TABLE_ENDS, *HEAD_ENDS)}  # in blocks
_PLAIN_TABLES: dict[TableRole, re.Pattern[str]] = {
    "position": _whole(*TENSOR_ENDS["position_embedding.weight"]),
    "token_type": _whole(*TENSOR_ENDS["token_type_embedding.weight"]),
    "per_layer": _whole(*TENSOR_ENDS["per_layer_embedding.table.weight"]),
    "head": _whole(*HEAD_ENDS),
    "token": _whole(*TABLE_ENDS),
}
# Other tables, some of them in blocks.
_SPECIAL_TABLES: dict[TableRole, re.Pattern[str]] = {
    "ngram": re.compile(
        r"(^|\.)(ngram_embedding(\.shard_\d+)?|engram\.embed|ngram_embeddings\.embedders\.\d+|encoder_hash_tok_embedding)"
        r"\.weight$"
    ),
    "value": re.compile(r"(^|\.)value_embed(ding)?s?(\.\d+)?\.weight$"),  # added to attention's values, per token
    "routing": re.compile(r"(^|\.)tid2eid$"),  # the experts of each token
    "mtp": re.compile(r"(^|\.)shared_head\.head\.weight$"),  # the head of DeepSeek-V3's multi-token prediction
}


def config_has_head(config: Mapping[str, Any] | None) -> bool | None:
    """Return whether the config's model class has a head; None if the config names no class."""
    classes = (config or {}).get("architectures")
    return any(WITH_HEAD.search(str(name)) for name in classes) if isinstance(classes, list) and classes else None


def table_role(name: str) -> TableRole | None:
    """Return a table's role, judged by its name; None if it is not a table. Tables inside a block are copies (mtp)."""
    if TOWERS.search(name):
        return None
    tables = _SPECIAL_TABLES | (_COPIES if OTHER_MODULES.search(name) else _PLAIN_TABLES)
    return next((role for role, pattern in tables.items() if pattern.search(name)), None)


def choose_part(part: str, names: Iterable[str], beside: str = "") -> str | None:
    """Return the name of a part in a checkpoint: the one with the longest common prefix with the table's name."""
    ends = TENSOR_ENDS[part]
    candidates = [name for name in names if name.endswith(ends) and not OTHER_MODULES.search(name)]

    def preference(name: str) -> tuple[int, int, bool, str]:
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(name, beside, strict=False)))
        order = next(order for order, end in enumerate(ends) if name.endswith(end))
        return -shared, order, "decoder." in name, name  # if a shared table has several names, prefer the encoder's

    return min(candidates, key=preference, default=None)


def choose_head(names: Iterable[str], has_table_size: Callable[[str], bool]) -> str | None:
    """Choose a head with an unusual name: `module.lm_head.weight` in a wrapped model, or an output of table size."""
    outer = [name for name in names if not OTHER_MODULES.search(name) and not ADAPTER.search(name)]
    candidates = [name for name in outer if name.endswith(HEAD_ENDS)]
    candidates = candidates or [name for name in outer if looks_like_head(name) and has_table_size(name)]
    return min(candidates, key=lambda name: (len(name), name), default=None)


def looks_like_head(name: str) -> bool:
    """Return whether the last module of a tensor's name is typical of an output layer."""
    return _OUTPUT.search(name.removesuffix(".weight").rpartition(".")[2]) is not None


def table_candidates(
    shapes: Mapping[str, Sequence[int]], rows: int | None, width: int | None, *, tied: bool = False
) -> list[str]:
    """List tensors that could be the table, the most likely first: by name, then by the size that the config requires.

    `shapes` has the tensors in headers or an index; `rows` and `width` are None if there is no config. A head has
    the size of a table, but is only a candidate if it is `tied` to the table.
    """
    tables = (None, "token", "head")  # excludes positions, n-grams, and values, whose names end like a table's
    flat = {name: shape for name, shape in shapes.items() if len(shape) == 2 and not OTHER_MODULES.search(name)}
    flat = {name: shape for name, shape in flat.items() if table_role(name) in tables and not ADAPTER.search(name)}
    heads = [name for name in flat if name.endswith(HEAD_ENDS)]
    others = [name for name in flat if name not in heads]
    likely = [name for name in others if name.endswith(TABLE_ENDS) and not looks_like_head(name)]
    likely = likely or [name for name in others if tuple(flat[name]) == (rows, width)]
    likely = likely or (heads if tied else []) or (others if rows is None and len(others) == 1 else [])

    def preference(name: str) -> tuple[bool, bool, bool, bool, int, int, str]:
        usual = TABLES.index(name) if name in TABLES else len(TABLES)
        wrong_size = rows is not None and tuple(flat[name]) != (rows, width)
        wrong_width = width is not None and flat[name][1] != width
        return wrong_size, wrong_width, looks_like_head(name), "emb" not in name, usual, len(name), name

    return sorted(likely, key=preference)
