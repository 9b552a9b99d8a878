"""Checks for the task "The bytes of a text"."""

from __future__ import annotations

import unicodedata

from inlayer.errors import type_name
from inlayer.learn.session import CheckFailed, GradingSession
from inlayer.render.numbers import pluralize

NAME = "utf8_bytes"
PARAMETERS = ("text",)
FORBIDDEN = ("inlayer",)

WIDER = "éßñЖ€あ漢🙂🦔"  # two, three, and four bytes each


def kind(session: GradingSession) -> None:
    """returns a list of integers"""
    got = session.call(plain(session))
    if isinstance(got, (bytes, bytearray)):
        raise CheckFailed("still-bytes", "your function returned a bytes object; return a list of the numbers in it")
    if not isinstance(got, list):
        raise CheckFailed("not-a-list", f"your function returned {type_name(got)}; return a list")
    for value in got:
        if not isinstance(value, int) or isinstance(value, bool):
            raise CheckFailed("not-numbers", f"the list contains {type_name(value)}; an id is an int")


def plain_text(session: GradingSession) -> None:
    """gives one id per character for plain English, including whitespace"""
    text = " " + plain(session) + "  " + plain(session) + "\n"
    judge(session.call(text), text)


def every_script(session: GradingSession) -> None:
    """encodes every character as its UTF-8 bytes"""
    drawn = "".join(WIDER[session.random_int(0, len(WIDER) - 1)] for _ in range(4))
    text = f"{plain(session)} {WIDER[session.random_int(0, 3)]}€🙂{drawn}"
    judge(session.call(text), text)


def nothing_changed(session: GradingSession) -> None:
    """changes nothing, and gives an empty list for an empty text"""
    text = plain(session) + "e\u0301ﬁ\r\n\tA\u030a\u200b"
    judge(session.call(text), text)
    if session.call("") != []:
        raise CheckFailed("empty-text", "an empty text has no bytes, so the result must be an empty list")


def lone_surrogate(session: GradingSession) -> None:
    """rejects a text that has no UTF-8 encoding"""
    text = plain(session) + chr(session.random_int(0xD800, 0xDBFF)) + plain(session)
    answer = session.try_call(text)
    if answer.raised is not None:
        if "ValueError" not in (answer.raised.type, *answer.raised.bases):
            raise CheckFailed(
                "surrogate-other-error",
                f"a lone surrogate raised {answer.raised.type}; raise a ValueError",
            )
    elif answer.value == list(text.encode("utf-8", "surrogatepass")):
        raise CheckFailed(
            "surrogate-let-through",
            "you encoded a lone surrogate as three bytes that no UTF-8 decoder accepts; raise a ValueError",
        )
    else:
        raise CheckFailed(
            "surrogate-swallowed",
            "you dropped or replaced a lone surrogate, so the ids belong to a different text; raise a ValueError",
        )


CHECKS = (kind, plain_text, every_script, nothing_changed, lone_surrogate)


def plain(session: GradingSession) -> str:
    """Return a few random ASCII letters."""
    return "".join(chr(session.random_int(ord("A"), ord("z"))) for _ in range(session.random_int(3, 8)))


def judge(got: object, text: str) -> None:
    """Compare with the UTF-8 bytes of the text, and name the mistake if it is a known one."""
    if got == list(text.encode()):
        return
    known: dict[str, tuple[list[int], str]] = {
        "code-points": (
            [ord(character) for character in text],
            "these are code points, one number per character; outside ASCII a character takes several bytes",
        ),
        "truncated-to-a-byte": (
            [ord(character) % 256 for character in text],
            "you truncated each code point to one byte; that loses information, and different characters look the same",
        ),
        "another-encoding": (
            list(text.encode("utf-16-le")),
            "these are UTF-16 bytes; every encoding gives different bytes, and models use UTF-8",
        ),
        "byte-order-mark": (
            list(text.encode("utf-8-sig")),
            "there are three extra bytes at the start: a byte order mark",
        ),
        "stripped-ends": (
            list(text.strip().encode()),
            "whitespace at the ends of the text is missing; it also has bytes",
        ),
        "words-joined": (
            list(" ".join(text.split()).encode()),
            "the whitespace changed; every byte counts",
        ),
        "normalized": (
            list(unicodedata.normalize("NFC", text).encode()),
            "the text was normalized: an e and an accent became one character, so the bytes belong to a different text",
        ),
        "normalized-kc": (
            list(unicodedata.normalize("NFKC", text).encode()),
            "the text was normalized (compatibility form): a ligature became two letters, which have different bytes",
        ),
        "unknown-characters": (
            list(text.encode("ascii", "replace")),
            "characters outside ASCII became question marks; each of them has its own bytes",
        ),
    }
    for rule, (value, message) in known.items():
        if got == value:
            raise CheckFailed(rule, message)
    if isinstance(got, list) and len(got) != len(text.encode()):
        raise CheckFailed(
            "length",
            f"you returned {pluralize(len(got), 'id')} for {pluralize(len(text), 'character')}; return one id per byte",
        )
    raise CheckFailed("values", "the number of ids is right, but their values are not")
