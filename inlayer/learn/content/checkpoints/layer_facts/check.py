"""Checks for the task "Read the input layer's config"."""

from __future__ import annotations

from typing import Any

from inlayer.learn.assertions import check_equal, is_identical
from inlayer.learn.session import CheckFailed, GradingSession, describe_value

NAME = "layer_facts"
PARAMETERS = ("config",)

FAMILIES: dict[str, tuple[bool, str]] = {
    "bloom": (True, "none"),
    "deepseek_v3": (False, "rotary"),
    "gemma3_text": (True, "rotary"),
    "gpt2": (True, "learned"),
    "kimi_k2": (False, "rotary"),
    "llama": (False, "rotary"),
    "t5": (True, "none"),
}
KEYS = ("vocab_size", "n_embd", "tied", "positions")


def sizes(session: GradingSession) -> tuple[int, int]:
    return session.random_int(1000, 200_000), 64 * session.random_int(2, 120)


def facts(rows: int, width: int, tied: bool, positions: str) -> dict[str, Any]:
    return {"vocab_size": rows, "n_embd": width, "tied": tied, "positions": positions}


def expect(session: GradingSession, config: dict[str, Any], want: dict[str, Any], rule: str, message: str) -> None:
    """Check a config that tests one rule, so any mistake here is about that rule."""
    answer = session.try_call(config)
    if answer.raised is not None:
        raise CheckFailed(rule, f"{message}; your code raised {answer.raised}")
    if not is_identical(answer.value, want):
        mistakes = [
            key
            for key in KEYS
            if not isinstance(answer.value, dict) or not is_identical(answer.value.get(key), want[key])
        ]
        raise CheckFailed(rule, f"{message}; wrong: {', '.join(mistakes) or 'the set of keys'}")


def keys(session: GradingSession) -> None:
    """returns a dict with four keys"""
    rows, width = sizes(session)
    config = {"model_type": "kimi_k2", "vocab_size": rows, "hidden_size": width, "tie_word_embeddings": False}
    got = session.call(config)
    if not isinstance(got, dict):
        raise CheckFailed("not-a-dict", f"return a dict; your function returned {describe_value(got)}")
    if got.keys() != set(KEYS):
        raise CheckFailed("keys", f"the keys must be {', '.join(KEYS)}; yours are {', '.join(map(str, got)) or 'none'}")


def values(session: GradingSession) -> None:
    """reads a complete config"""
    rows, width = sizes(session)
    config = {
        "model_type": "kimi_k2",
        "vocab_size": rows,
        "hidden_size": width,
        "max_position_embeddings": 131_072,
        "rope_theta": 50_000.0,
        "tie_word_embeddings": False,
    }
    want = facts(rows, width, False, "rotary")
    check_equal(
        session.call(config),
        want,
        mistakes={
            "positions-by-length": (
                want | {"positions": "learned"},
                "you mistook max_position_embeddings for the size of a position table; rotary models also have a "
                "maximum length",
            ),
            "tied-by-class": (
                want | {"tied": True},
                "you returned Kimi-K2 as tied; the config says false, whatever the class lists as tieable",
            ),
            "swapped-sizes": (facts(width, rows, False, "rotary"), "the rows and the width are swapped"),
        },
        message="the facts of a complete config are wrong",
    )


def families(session: GradingSession) -> None:
    """knows each family's field names and positions"""
    for family, width_name in (
        ("llama", "hidden_size"),
        ("gpt2", "n_embd"),
        ("bloom", "hidden_size"),
        ("t5", "d_model"),
    ):
        rows, width = sizes(session)
        tied, positions = FAMILIES[family]
        config = {"model_type": family, "vocab_size": rows, width_name: width, "tie_word_embeddings": tied}
        want = facts(rows, width, tied, positions)
        answer = session.try_call(config)
        if answer.raised is not None and answer.raised.type == "KeyError":
            raise CheckFailed(
                "width-name", f"a {family} config, which calls its width {width_name}, raised {answer.raised}"
            )
        if isinstance(answer.value, dict) and answer.value.get("n_embd") != width:
            raise CheckFailed(
                "width-name",
                f"a {family} config calls its width {width_name}; your code does not find it under that name",
            )
        expect(session, config, want, "families", f"the facts of a {family} config are wrong")


def tie_given(session: GradingSession) -> None:
    """prefers the config's tie_word_embeddings to the family's default"""
    for family in ("gpt2", "llama", "bloom", "deepseek_v3"):
        rows, width = sizes(session)
        usual, positions = FAMILIES[family]
        config = {"model_type": family, "vocab_size": rows, "hidden_size": width, "tie_word_embeddings": not usual}
        check_equal(
            session.call(config),
            facts(rows, width, not usual, positions),
            mistakes={
                "tie-ignored": (
                    facts(rows, width, usual, positions),
                    f"in a {family} config whose tie_word_embeddings is not the default, your code "
                    "ignores the field; False is also a value",
                )
            },
            message=f"in a {family} config whose tie_word_embeddings is not the default, the facts are wrong",
        )


def tie_missing(session: GradingSession) -> None:
    """uses the family's default if tie_word_embeddings is missing"""
    for family, (usual, positions) in FAMILIES.items():
        rows, width = sizes(session)
        config = {"model_type": family, "vocab_size": rows, "hidden_size": width}
        message = f"in a {family} config without tie_word_embeddings, use the family's default"
        expect(session, config, facts(rows, width, usual, positions), "tie-default", message)


def nulls(session: GradingSession) -> None:
    """treats null as missing"""
    rows, width = sizes(session)
    for family in ("gpt2", "llama"):
        usual, positions = FAMILIES[family]
        config = {
            "model_type": family,
            "vocab_size": rows,
            "hidden_size": None,
            "n_embd": width,
            "tie_word_embeddings": None,
            "text_config": None,
        }
        message = "treat fields that are null as if they were missing"
        expect(session, config, facts(rows, width, usual, positions), "null-field", message)


def nested(session: GradingSession) -> None:
    """reads the text settings of a multimodal model"""
    rows, width = sizes(session)
    text = {"model_type": "deepseek_v3", "vocab_size": rows, "hidden_size": width, "tie_word_embeddings": False}
    config: dict[str, Any] = {"model_type": "kimi_k25", "text_config": text, "vision_config": {"hidden_size": 1152}}
    message = "in a multimodal model, the text settings are in text_config"
    expect(session, config, facts(rows, width, False, "rotary"), "nested", message)
    outer = {"model_type": "llava", "hidden_size": 1152, "vocab_size": 7, "text_config": text}
    message = "a multimodal model may have its own width and vocabulary; the table's are those in text_config"
    expect(session, outer, facts(rows, width, False, "rotary"), "outer-sizes", message)
    message = "a multimodal model may set tie_word_embeddings at the outer level; it takes precedence over text_config"
    expect(session, {**config, "tie_word_embeddings": True}, facts(rows, width, True, "rotary"), "outer-tie", message)


def unknown(session: GradingSession) -> None:
    """raises ValueError for anything unknown"""
    rows, width = sizes(session)
    strange = {"model_type": "mamba", "vocab_size": rows, "hidden_size": width, "tie_word_embeddings": False}
    session.assert_raises("guessed", strange, message="raise a ValueError for a family that is not in the table")
    session.assert_raises(
        "guessed",
        {**strange, "model_type": None},
        message="raise a ValueError for a config without a model_type",
    )
    for missing in ("vocab_size", "hidden_size"):
        config = {"model_type": "llama", "vocab_size": rows, "hidden_size": width}
        del config[missing]
        session.assert_raises("size-missing", config, message=f"raise a ValueError for a config without {missing}")


CHECKS = (keys, values, families, tie_given, tie_missing, nulls, nested, unknown)
