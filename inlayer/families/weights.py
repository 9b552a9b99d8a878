"""What the tensors of an input layer are called in the files of every family, and which of several is meant.

names of tensors -> [part of the layer] -> Embeddings, Head
- a table is first looked for under its exact usual names, in order of preference, then by the end of its name
- what lies inside a block is no input layer: DeepSeek-V3 has a second table at `model.layers.61.embed_tokens.weight`,
  for its multi-token prediction; nor is what belongs to a vision or audio tower
- besides this module and the table of families nobody in inlayer knows these names
Checked on checkpoints that transformers wrote, for every family, in tests/checkpoint/test_parity.py, and on the true
layouts of large models in tests/families/test_weights.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["HEADS", "PARTS", "TABLES", "choose_head", "choose_part", "table_candidates"]

# Where the text model sits within a larger one; the empty prefix is a checkpoint saved without a head.
TEXT_MODELS = (
    "model.", "", "transformer.", "model.language_model.", "language_model.model.", "language_model.", "model.encoder.",
    "encoder.", "model.decoder.", "decoder.", "gpt_neox.", "bert.", "roberta.", "distilbert.", "electra.", "albert.",
    "mpnet.", "model.text_model.", "text_model.", "model.model.", "backbone.",
)  # fmt: skip

_TABLE_ENDS = (
    "shared.weight",  # T5: before the copies its encoder and decoder may have
    "embed_tokens.weight",
    "wte.weight",
    "embeddings.word_embeddings.weight",
    "word_embeddings.weight",
    "embed_in.weight",
    "tok_embeddings.weight",
    "token_embd.weight",  # GGUF
    "embeddings.weight",
    "embedding.weight",
    "token_embedding.weight",
    "embeddings",
)
_HEAD_ENDS = (
    "lm_head.weight",
    "embed_out.weight",
    "cls.predictions.decoder.weight",
    "lm_head.decoder.weight",
    "predictions.decoder.weight",
    "vocab_projector.weight",
    "generator_lm_head.weight",
    "output.weight",  # GGUF, and LLaMA's own files
)

TABLES: tuple[str, ...] = tuple(prefix + end for end in _TABLE_ENDS for prefix in TEXT_MODELS)
HEADS: tuple[str, ...] = tuple(
    prefix + end for end in _HEAD_ENDS for prefix in ("", "model.", "language_model.", "model.language_model.")
)

# The other parts by our own names for them, each under the ends of its names elsewhere.
PARTS: dict[str, tuple[str, ...]] = {
    "position_embedding.weight": (
        "wpe.weight",
        "position_embeddings.weight",
        "embed_positions.weight",
        "position_embd.weight",
    ),
    "token_type_embedding.weight": ("token_type_embeddings.weight", "token_types.weight"),
    "norm.weight": (
        "embeddings.LayerNorm.weight",
        "embeddings.LayerNorm.gamma",  # TensorFlow's words, in old files
        "word_embeddings_layernorm.weight",
        "token_embd_norm.weight",
    ),
    "norm.bias": (
        "embeddings.LayerNorm.bias",
        "embeddings.LayerNorm.beta",
        "word_embeddings_layernorm.bias",
        "token_embd_norm.bias",
    ),
    "projection.weight": ("project_in.weight", "embedding_hidden_mapping_in.weight", "embeddings_project.weight"),
    "projection.bias": ("embedding_hidden_mapping_in.bias", "embeddings_project.bias"),
    "head.bias": (
        "cls.predictions.decoder.bias",  # where there are two, the decoder's is the one in use
        "lm_head.decoder.bias",
        "predictions.decoder.bias",
        "lm_head.bias",
        "cls.predictions.bias",
        "predictions.bias",
        "vocab_projector.bias",
        "generator_lm_head.bias",
        "output.bias",
    ),
}

# A number between dots is a block; towers have input layers of their own.
_ELSEWHERE = re.compile(r"(^|\.)(\d+|vision\w*|visual\w*|audio\w*|image\w*|mtp\w*)\.")


def choose_part(part: str, names: Iterable[str], beside: str = "") -> str | None:
    """The name of a part among a checkpoint's names: the one that shares most of its beginning with the table's."""
    ends = PARTS[part]
    found = [name for name in names if name.endswith(ends) and not _ELSEWHERE.search(name)]
    rank = {end: order for order, end in enumerate(ends)}

    def preference(name: str) -> tuple[int, int, str]:
        shared = len(_common(name, beside))
        return -shared, min(order for end, order in rank.items() if name.endswith(end)), name

    return min(found, key=preference, default=None)


def choose_head(names: Iterable[str]) -> str | None:
    """A head under no usual name, such as one whose model was wrapped by another: `module.lm_head.weight`."""
    found = [name for name in names if name.endswith(_HEAD_ENDS) and not _ELSEWHERE.search(name)]
    return min(found, key=lambda name: (len(name), name), default=None)


def table_candidates(
    shapes: Mapping[str, Sequence[int]], rows: int | None, width: int | None, *, tied: bool = False
) -> list[str]:
    """Tensors that could be the table, the likeliest first: by name, then by the size the config asks for.

    `shapes` holds the tensors that a header or an index told of; `rows` and `width` are None where no config says.
    A head has a table's size, but is one only where the two are `tied`.
    """
    flat = {name: shape for name, shape in shapes.items() if len(shape) == 2 and not _ELSEWHERE.search(name)}
    heads = [name for name in flat if name.endswith(_HEAD_ENDS)]
    others = [name for name in flat if name not in heads]
    likely = [name for name in others if name.endswith(_TABLE_ENDS)]
    likely = likely or [name for name in others if tuple(flat[name]) == (rows, width)]
    likely = likely or (heads if tied else []) or (others if rows is None and len(others) == 1 else [])

    def preference(name: str) -> tuple[bool, bool, int, int, str]:
        usual = TABLES.index(name) if name in TABLES else len(TABLES)
        shape = tuple(flat[name])
        return (
            (rows is not None and shape != (rows, width)),
            width is not None and shape[1] != width,
            usual,
            len(name),
            name,
        )

    return sorted(likely, key=preference)


def _common(one: str, other: str) -> str:
    length = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]
