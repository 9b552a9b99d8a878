"""Choosing the table: on the layouts of large models, and on misleading names."""

from __future__ import annotations

import pytest

from inlayer.families.tensor_names import HEAD_TENSORS, TABLES, choose_part, table_candidates

BIG = (163840, 7168)


def first(names: dict[str, tuple[int, ...]], rows: int | None = None, width: int | None = None) -> str | None:
    found = table_candidates(names, rows, width)
    return found[0] if found else None


@pytest.mark.parametrize(
    "table",
    [
        "model.embed_tokens.weight",
        "transformer.wte.weight",
        "embeddings.word_embeddings.weight",
        "bert.embeddings.word_embeddings.weight",
        "model.language_model.embed_tokens.weight",
        "language_model.model.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
        "transformer.word_embeddings.weight",
        "gpt_neox.embed_in.weight",
        "shared.weight",
        "token_embd.weight",
        "tok_embeddings.weight",
        "wte.weight",
    ],
)
def test_usual_names_are_found(table: str) -> None:
    assert table in TABLES
    others = {"lm_head.weight": BIG, "model.layers.0.mlp.up_proj.weight": BIG, "model.norm.weight": (7168,)}
    assert first(others | {table: BIG}) == table
    assert first(others | {table: BIG}, *BIG) == table


def test_table_of_multi_token_prediction_is_not_chosen() -> None:
    """DeepSeek-V3: two tensors have names that end like a table's."""
    names = {
        "model.layers.61.embed_tokens.weight": BIG,
        "model.layers.61.shared_head.head.weight": BIG,
        "model.embed_tokens.weight": BIG,
        "lm_head.weight": BIG,
    }
    assert table_candidates(names, *BIG) == ["model.embed_tokens.weight"]


def test_tables_of_towers_are_not_chosen() -> None:
    names = {
        "model.visual.embed_tokens.weight": (999, 7168),
        "vision_tower.embeddings.weight": (99, 7168),
        "model.language_model.embed_tokens.weight": BIG,
    }
    assert table_candidates(names, None, None) == ["model.language_model.embed_tokens.weight"]


def test_other_tables_are_not_chosen() -> None:
    """BLT when tied, stored without a table of its own: the head is the table."""
    names = {"model.encoder_hash_tok_embedding.weight": (582, 64), "token_type_embeddings.weight": (2, 64)}
    assert table_candidates(names | {"lm_head.weight": (99, 64)}, 99, 64, tied=True) == ["lm_head.weight"]
    assert table_candidates(names, 99, 64) == []


def test_config_decides_between_candidates() -> None:
    names = {"decoder.embed_tokens.weight": (10, 4), "other.embed_tokens.weight": (20, 4)}
    assert first(names, 20, 4) == "other.embed_tokens.weight"
    assert first(names, 10, 4) == "decoder.embed_tokens.weight"
    assert first(names) == "decoder.embed_tokens.weight"


def test_unknown_name_is_found_by_size_and_head_only_if_tied() -> None:
    names = {"lm_head.weight": (20, 4), "lookup": (20, 4), "square": (4, 4), "vector": (20,)}
    assert first(names, 20, 4) == "lookup"
    alone = {"lm_head.weight": (20, 4), "square": (4, 4), "other": (4, 4)}
    assert table_candidates(alone, 20, 4, tied=True) == ["lm_head.weight"]
    assert table_candidates(alone, 20, 4) == []  # an untied head is not a table; the table's shard is missing
    assert first({"only": (20, 4), "vector": (20,)}) == "only"
    assert first({"one": (20, 4), "two": (20, 4)}) is None
    assert first({"vector": (20,)}) is None


def test_parts_are_chosen_by_the_prefix_of_the_table() -> None:
    names = [
        "decoder.embed_positions.weight",
        "encoder.embed_positions.weight",
        "encoder.layers.0.embed_positions.weight",
        "vision_tower.embeddings.position_embeddings.weight",
    ]
    part = "position_embedding.weight"
    assert choose_part(part, names, "encoder.embed_tokens.weight") == "encoder.embed_positions.weight"
    assert choose_part(part, names, "decoder.embed_tokens.weight") == "decoder.embed_positions.weight"
    assert choose_part(part, names[2:], "decoder.embed_tokens.weight") is None
    assert choose_part("norm.weight", ["bert.embeddings.LayerNorm.gamma", "bert.pooler.LayerNorm.weight"], "") == (
        "bert.embeddings.LayerNorm.gamma"
    )


def test_names_are_unambiguous() -> None:
    assert not set(TABLES) & set(HEAD_TENSORS)
    assert len(set(TABLES)) == len(TABLES)
