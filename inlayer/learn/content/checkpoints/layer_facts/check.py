"""Checks of "What a config says of the input layer"."""

from __future__ import annotations

from typing import Any

from inlayer.learn.checks import check_equal, is_identical
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
    """The facts of a config that tries one rule: whatever goes wrong here goes wrong by that rule."""
    answer = session.try_call(config)
    if answer.raised is not None:
        raise CheckFailed(rule, f"{message}: it raised {answer.raised}")
    if not is_identical(answer.value, want):
        mistakes = [
            key
            for key in KEYS
            if not isinstance(answer.value, dict) or not is_identical(answer.value.get(key), want[key])
        ]
        raise CheckFailed(rule, f"{message}: {', '.join(mistakes) or 'its keys'} differs")


def keys(session: GradingSession) -> None:
    """a dict with four keys"""
    rows, width = sizes(session)
    config = {"model_type": "kimi_k2", "vocab_size": rows, "hidden_size": width, "tie_word_embeddings": False}
    got = session.call(config)
    if not isinstance(got, dict):
        raise CheckFailed("not-a-dict", f"the result must be a dict; it is {describe_value(got)}")
    if got.keys() != set(KEYS):
        raise CheckFailed("keys", f"the keys must be {', '.join(KEYS)}; they are {', '.join(map(str, got)) or 'none'}")


def values(session: GradingSession) -> None:
    """a config that says everything"""
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
                "max_position_embeddings is taken for a table of positions; rotary models have a longest text, too",
            ),
            "tied-by-class": (
                want | {"tied": True},
                "Kimi-K2 is taken for tied; the config says false, whatever the class names as what could be tied",
            ),
            "swapped-sizes": (facts(width, rows, False, "rotary"), "rows and width are swapped"),
        },
        message="the facts of a config that says everything differ",
    )


def families(session: GradingSession) -> None:
    """each family under its own names and positions"""
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
                "width-name", f"a {family} config, which calls its width {width_name}: it raised {answer.raised}"
            )
        if isinstance(answer.value, dict) and answer.value.get("n_embd") != width:
            raise CheckFailed(
                "width-name", f"a {family} config calls its width {width_name}; it is not found under that name"
            )
        expect(session, config, want, "families", f"the facts of a {family} config differ")


def tie_said(session: GradingSession) -> None:
    """what the config says of the tie goes before what is usual"""
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
                    f"a {family} config whose tie is not the usual one: the field is not heard. False is a word, too",
                )
            },
            message=f"a {family} config whose tie is not the usual one: the facts differ",
        )


def tie_unsaid(session: GradingSession) -> None:
    """where the config says nothing of the tie, the family's custom holds"""
    for family, (usual, positions) in FAMILIES.items():
        rows, width = sizes(session)
        config = {"model_type": family, "vocab_size": rows, "hidden_size": width}
        message = f"a {family} config without tie_word_embeddings: what is usual in the family holds"
        expect(session, config, facts(rows, width, usual, positions), "tie-default", message)


def nulls(session: GradingSession) -> None:
    """null says nothing"""
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
        message = "fields that are null count as if they were not there"
        expect(session, config, facts(rows, width, usual, positions), "null-field", message)


def nested(session: GradingSession) -> None:
    """the text part of a model with pictures"""
    rows, width = sizes(session)
    text = {"model_type": "deepseek_v3", "vocab_size": rows, "hidden_size": width, "tie_word_embeddings": False}
    config: dict[str, Any] = {"model_type": "kimi_k25", "text_config": text, "vision_config": {"hidden_size": 1152}}
    message = "a model with pictures: its text part is in text_config"
    expect(session, config, facts(rows, width, False, "rotary"), "nested", message)
    outer = {"model_type": "llava", "hidden_size": 1152, "vocab_size": 7, "text_config": text}
    message = "a model with pictures has a width and a vocabulary of its own; those of text_config are the table's"
    expect(session, outer, facts(rows, width, False, "rotary"), "outer-sizes", message)
    message = "a model with pictures says of the tie at the outer level; that goes before text_config"
    expect(session, {**config, "tie_word_embeddings": True}, facts(rows, width, True, "rotary"), "outer-tie", message)


def unknown(session: GradingSession) -> None:
    """what is not known is an error"""
    rows, width = sizes(session)
    strange = {"model_type": "mamba", "vocab_size": rows, "hidden_size": width, "tie_word_embeddings": False}
    session.must_raise("guessed", strange, message="a family that is not in the table must be refused by a ValueError")
    session.must_raise(
        "guessed",
        {**strange, "model_type": None},
        message="a config without a model_type must be refused by a ValueError",
    )
    for missing in ("vocab_size", "hidden_size"):
        config = {"model_type": "llama", "vocab_size": rows, "hidden_size": width}
        del config[missing]
        session.must_raise(
            "size-missing", config, message=f"a config without {missing} must be refused by a ValueError"
        )


CHECKS = (keys, values, families, tie_said, tie_unsaid, nulls, nested, unknown)
