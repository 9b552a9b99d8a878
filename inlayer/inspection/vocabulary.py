"""Tokens against rows against the config: padding rows, ids past the table, holes, special tokens and their rows.

[checkpoint] files -> [facts -> findings]
- rows past the last token are normal: tables are made a multiple of 64 or 128 long
- a special token past the table that speaks of images or sound belongs to a larger sister of the model (Gemma-3 1B)
- not here: which id is what (doctor/survey.py), what the rows are like (doctor/rows.py)
Checked with damaged copies in tests/inspection/test_faults.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from inlayer.inspection.health import RowStatistics
from inlayer.inspection.report import LARGEST, Example, Finding, Severity, SpecialToken, VocabularyFacts
from inlayer.inspection.survey import Kind, Survey
from inlayer.paths import quoted

__all__ = ["MAX_EXAMPLES", "named_ids", "odd_id_findings", "vocabulary_facts", "vocabulary_findings"]

MAX_EXAMPLES = 5
MAX_SPECIAL, MAX_NAMED, MAX_ROLES = 64, 32, 8
MAX_PADDING = 0.2  # of the table; real models stay below 2 %
MAIN_ROLES = frozenset(("bos", "eos", "pad", "unk", "cls", "sep", "mask"))
MARKED = re.compile(r"'?[<\[].*[>\]]'?", re.DOTALL)  # <|im_end|>: special by its look, whatever its file says
OTHER_SENSES = re.compile(r"image|audio|video|vision|sound|speech", re.IGNORECASE)


def named_ids(config: Mapping[str, Any]) -> dict[int, list[str]]:
    """The ids that a config gives a part to play, with the names of the parts: {2: ["eos", "pad"]}."""
    found: dict[int, list[str]] = {}
    for key, value in config.items():
        role = re.fullmatch(r"(\w{1,40})_token_ids?", key)
        for one in value if isinstance(value, list) else [value]:
            # a negative one is an old way to say that there is none
            if role and type(one) is int and 0 <= one < LARGEST and (one in found or len(found) < MAX_NAMED):
                roles = found.setdefault(one, [])
                if role.group(1) not in roles and len(roles) < MAX_ROLES:
                    roles.append(role.group(1))
    return found


def odd_id_findings(config: Mapping[str, Any]) -> Iterator[Finding]:
    """Special ids of the config that are no ids at all. None and -1 say that there is none."""
    odd = [
        f"{key} {quoted(value)}"
        for key in (f"{role}_token_id" for role in sorted(MAIN_ROLES))
        for value in (config.get(key),)
        if not all(_is_id(one) for one in (value if isinstance(value, list) else [value]))
    ]
    if odd:
        yield Finding(
            severity="warning",
            code="special-id-odd",
            meaning=f"the config's {_and(odd)} {'is' if len(odd) == 1 else 'are'} no whole number of 0 or more",
            advice="write the id as a number, or null where there is none",
            count=len(odd),
        )


def _is_id(value: object) -> bool:
    return value is None or (type(value) is int and -1 <= value < LARGEST)


def vocabulary_facts(
    survey: Survey, statistics: RowStatistics, named: Mapping[int, list[str]], config_rows: int | None
) -> VocabularyFacts:
    tokenizer, complete = survey.tokenizer, len(survey.ids) == survey.rows
    missing, reserved = survey.are(Kind.MISSING), survey.are(Kind.RESERVED)
    after = survey.ids > survey.last_token
    known = tokenizer is not None
    reusable = np.flatnonzero(missing | reserved)
    return VocabularyFacts(
        tokenizer=type(tokenizer).__name__.removesuffix("Tokenizer") if known else None,
        tokens=tokenizer.get_vocab_size() if tokenizer is not None else None,
        config_rows=config_rows,
        table_rows=survey.rows,
        rows_looked_at=len(survey.ids),
        rows_past_tokens=_padding(survey, complete) if known else None,
        holes=int((missing & ~after).sum()) if known else None,
        tokens_past_table=survey.tokens_past_table if known else None,
        reserved=int(reserved.sum()) if known else None,
        reusable=len(reusable) if known else None,
        reusable_examples=tuple(
            Example(id=int(survey.ids[place]), text=survey.text(int(survey.ids[place])))
            for place in reusable[:MAX_EXAMPLES]
        ),
        special=tuple(_special_tokens(survey, statistics, named)),
    )


def _padding(survey: Survey, complete: bool) -> int:
    """Rows past the last token. A sample cannot know the last one: there the tokens are taken to have no holes."""
    if complete or survey.tokenizer is None:
        return survey.rows - 1 - survey.last_token
    return max(0, survey.rows - survey.tokenizer.get_vocab_size())


def _special_tokens(
    survey: Survey, statistics: RowStatistics, named: Mapping[int, list[str]]
) -> Iterator[SpecialToken]:
    places = {token_id: place for place, token_id in enumerate(statistics.ids.tolist())}
    special = survey.tokenizer.special_ids if survey.tokenizer is not None else frozenset[int]()
    plain = sorted(special - set(named) - set(survey.ids[survey.are(Kind.RESERVED)].tolist()))
    for token_id in [*sorted(named), *plain[:MAX_SPECIAL]]:
        place = places.get(token_id)
        yield SpecialToken(
            id=token_id,
            text=survey.text(token_id),
            roles=tuple(named.get(token_id, ())),
            norm=float(statistics.norms[place]) if place is not None else None,
        )


def vocabulary_findings(survey: Survey, facts: VocabularyFacts, named: Mapping[int, list[str]]) -> Iterator[Finding]:
    """Where tokens, rows and config disagree. `named` are the ids that the config names."""
    outside = {token_id: roles for token_id, roles in named.items() if token_id >= survey.rows}
    senses = {token_id for token_id, roles in outside.items() if all(OTHER_SENSES.search(role) for role in roles)}
    severity: Severity
    for severity, ids in (("error", [one for one in outside if one not in senses]), ("note", sorted(senses))):
        if ids:
            yield Finding(
                severity=severity,
                code="special-id-past-table",
                meaning=f"the config's {_ids(named, ids)} outside the table of {survey.rows:,} rows",
                advice="take the id from the model's own config.json, or resize the table",
                count=len(ids),
                examples=_examples(survey, ids) if len(ids) > 1 else (),
            )
    if survey.tokenizer is None:
        yield Finding(
            severity="note",
            code="no-tokenizer",
            meaning="there is no tokenizer with the table: no row can be shown as text or told apart by use",
            advice="put tokenizer.json (or tokenizer.model, tiktoken.model) beside the weights",
        )
        return
    yield from _past_table(survey)
    if facts.rows_past_tokens is not None and facts.rows_past_tokens > MAX_PADDING * survey.rows:
        yield Finding(
            severity="warning",
            code="tokenizer-too-small",
            meaning=f"the last {facts.rows_past_tokens:,} of {survey.rows:,} rows have no token: more than padding",
            advice="is this the tokenizer of another model? Fetch the model's own",
            count=facts.rows_past_tokens,
        )
    yield from _named(survey, {one: roles for one, roles in named.items() if one < survey.rows})


def _past_table(survey: Survey) -> Iterator[Finding]:
    if not survey.tokens_past_table or survey.tokenizer is None:
        return
    special = survey.tokenizer.special_ids
    sister = len(survey.past_table) == survey.tokens_past_table and all(
        token_id in special and OTHER_SENSES.search(survey.text(token_id) or "") for token_id in survey.past_table
    )
    count = survey.tokens_past_table
    yield Finding(
        severity="note" if sister else "error",
        code="ids-past-table",
        meaning=f"{count:,} {'token has an id' if count == 1 else 'tokens have ids'} past the {survey.rows:,} rows of "
        "the table" + ("; by name they are for images or sound, which this model does not take" if sister else ""),
        advice="such a token never reaches this model"
        if sister
        else "resize the table for the tokens that were added, or take the tokenizer the table was made for",
        count=count,
        examples=_examples(survey, survey.past_table),
    )


def _named(survey: Survey, named: Mapping[int, list[str]]) -> Iterator[Finding]:
    """Ids of the config that should be special tokens, and may be none."""
    tokenizer = survey.tokenizer
    if tokenizer is None:
        return
    without: dict[Severity, list[int]] = {"warning": [], "note": []}
    ordinary: dict[Severity, list[int]] = {"warning": [], "note": []}
    for token_id, roles in named.items():
        text = survey.text(token_id)
        if not MAIN_ROLES.intersection(roles) or token_id in tokenizer.special_ids or MARKED.fullmatch(text or ""):
            continue
        if text is None:
            without["warning" if token_id < tokenizer.get_vocab_size() else "note"].append(token_id)
        else:
            ordinary["warning" if "eos" in roles else "note"].append(token_id)
    for severity, ids in without.items():
        if ids:
            yield Finding(
                severity=severity,
                code="special-id-without-token",
                meaning=f"the config's {_ids(named, ids)} without a token, and {'has' if len(ids) == 1 else 'have'} a "
                "row",
                advice="no text gives this id; is the tokenizer complete, and of this model?",
                count=len(ids),
                examples=_examples(survey, ids) if len(ids) > 1 else (),
            )
    for severity, ids in ordinary.items():
        if ids:
            what = "an ordinary token" if len(ids) == 1 else "ordinary tokens"
            yield Finding(
                severity=severity,
                code="special-id-is-ordinary",
                meaning=f"the config's {_ids(named, ids)} {what}",
                advice="a text ends where this token occurs; is config.json of the same model as the tokenizer?"
                if severity == "warning"
                else "texts that hold the token give the same id; compare with the model's own config.json",
                count=len(ids),
                examples=_examples(survey, ids),
            )


def _ids(named: Mapping[int, list[str]], ids: list[int]) -> str:
    """Special ids as the subject of a sentence: "eos id 7 is"; of many, the roles alone."""
    if len(ids) == 1:
        return f"{_and(named[ids[0]])} id {ids[0]:,} is"
    roles = list(dict.fromkeys(role for one in ids for role in named[one]))[:MAX_ROLES]
    return f"{_and(roles)} ids ({len(ids):,} of them) are"


def _examples(survey: Survey, ids: Iterable[int]) -> tuple[Example, ...]:
    return tuple(Example(id=token_id, text=survey.text(token_id)) for token_id in list(ids)[:MAX_EXAMPLES])


def _and(names: list[str]) -> str:
    return " and ".join(names)
