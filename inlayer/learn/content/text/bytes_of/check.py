"""Checks of "The bytes of a text"."""

from __future__ import annotations

import unicodedata

from inlayer.learn.session import CheckFailed, GradingSession

NAME = "bytes_of"
PARAMETERS = ("text",)
FORBIDDEN_NAMES = ("inlayer",)

WIDER = "éßñЖ€あ漢🙂🦔"  # two, three and four bytes each


def kind(session: GradingSession) -> None:
    """a list of whole numbers"""
    got = session.call(plain(session))
    if isinstance(got, (bytes, bytearray)):
        raise CheckFailed(
            "still-bytes", "the answer is a bytes object; what is asked for is a list of the numbers in it"
        )
    if not isinstance(got, list):
        raise CheckFailed("not-a-list", f"the answer is a {type(got).__name__}; it must be a list")
    for value in got:
        if not isinstance(value, int) or isinstance(value, bool):
            raise CheckFailed(
                "not-numbers", f"the list holds a {type(value).__name__}; an id is a whole number, an int"
            )


def plain_text(session: GradingSession) -> None:
    """one id for each character of plain English, white space included"""
    text = " " + plain(session) + "  " + plain(session) + "\n"
    judge(session.call(text), text)


def every_script(session: GradingSession) -> None:
    """every character as its UTF-8 bytes"""
    drawn = "".join(WIDER[session.random_int(0, len(WIDER) - 1)] for _ in range(4))
    text = f"{plain(session)} {WIDER[session.random_int(0, 3)]}€🙂{drawn}"
    judge(session.call(text), text)


def nothing_changed(session: GradingSession) -> None:
    """nothing is tidied up, and the empty text is the empty list"""
    text = plain(session) + "e\u0301ﬁ\r\n\tA\u030a\u200b"
    judge(session.call(text), text)
    if session.call("") != []:
        raise CheckFailed("empty-text", "the empty text has no bytes, so it has no ids")


def lone_surrogate(session: GradingSession) -> None:
    """a text without UTF-8 bytes is refused"""
    text = plain(session) + chr(session.random_int(0xD800, 0xDBFF)) + plain(session)
    answer = session.try_call(text)
    if answer.raised is not None:
        if "ValueError" not in (answer.raised.type, *answer.raised.bases):
            raise CheckFailed(
                "surrogate-other-error",
                f"a lone surrogate raised {answer.raised.type}; the task asks for a ValueError",
            )
    elif answer.value == list(text.encode("utf-8", "surrogatepass")):
        raise CheckFailed(
            "surrogate-let-through",
            "a lone surrogate was written as three bytes that no UTF-8 reader accepts; it must be a ValueError",
        )
    else:
        raise CheckFailed(
            "surrogate-swallowed",
            "a lone surrogate was left out or replaced, so the ids are those of another text; it must be a ValueError",
        )


CHECKS = (kind, plain_text, every_script, nothing_changed, lone_surrogate)


def plain(session: GradingSession) -> str:
    """A few letters of ASCII, drawn."""
    return "".join(chr(session.random_int(ord("A"), ord("z"))) for _ in range(session.random_int(3, 8)))


def judge(got: object, text: str) -> None:
    """The bytes of the text, or a failure that says what was given instead."""
    if got == list(text.encode()):
        return
    known: dict[str, tuple[list[int], str]] = {
        "code-points": (
            [ord(character) for character in text],
            "these are code points, one number a character; beyond ASCII a character takes several bytes",
        ),
        "cut-to-a-byte": (
            [ord(character) % 256 for character in text],
            "each code point was cut down to one byte; what was cut off is lost, and other characters look the same",
        ),
        "another-encoding": (
            list(text.encode("utf-16-le")),
            "these are bytes of UTF-16; the same text has other bytes in every encoding, and models agree on UTF-8",
        ),
        "byte-order-mark": (
            list(text.encode("utf-8-sig")),
            "three bytes stand before the text that are not in it: a byte order mark",
        ),
        "tidied-ends": (list(text.strip().encode()), "white space at the ends of the text was lost; it has bytes too"),
        "words-joined": (
            list(" ".join(text.split()).encode()),
            "white space of the text was changed; every byte counts",
        ),
        "normalized": (
            list(unicodedata.normalize("NFC", text).encode()),
            "the text was normalized: e and an accent became one character, so the bytes are those of another text",
        ),
        "normalized-kc": (
            list(unicodedata.normalize("NFKC", text).encode()),
            "the text was normalized by compatibility: a ligature became two letters, which have other bytes",
        ),
        "unknown-characters": (
            list(text.encode("ascii", "replace")),
            "characters beyond ASCII became question marks; each of them has bytes of its own",
        ),
    }
    for rule, (value, message) in known.items():
        if got == value:
            raise CheckFailed(rule, message)
    if isinstance(got, list) and len(got) != len(text.encode()):
        raise CheckFailed("length", f"{len(got)} ids for a text of {len(text)} characters; it is one id for each byte")
    raise CheckFailed("values", "as many ids as bytes, but not the same numbers")
