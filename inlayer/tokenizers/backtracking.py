"""Regular expressions of tokenizer files that could take exponential time: rejected before they run.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- Oniguruma, the engine of `tokenizers`, gives up on one match after 10 million steps, about 0.3 s. A file can need
  almost that many at every character, in many patterns. tiktoken's engine has its own limit
- patterns of published tokenizers are alternatives of a few repeated characters and classes, so anything else is an
  error when the file is opened
- a pattern that passes can still take polynomial time, as the patterns of GPT-2 and its successors do, but only on long
  texts
- see also: limits of the number and the length of patterns (untrusted_files.py)
Tested in tests/tokenizers/test_patterns.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MAX_VARIABLE_PARTS = 4  # optional and repeated parts in a row, as in published patterns
MAX_LOG2_CHOICES = 6  # of the ways to choose alternatives in a row; 3 in published patterns
SYNTAX = r"""
    (?P<open> \( (?: \?(?: [ims-]*: | [=!>] | <[=!] | <\w+> ) | (?!\?) ) )
  | (?P<flags> \(\?[ims-]+\) )
  | (?P<close> \) )
  | (?P<either> \| )
  | (?P<repeat> (?P<many>[*+]|\?) [?+]? | \{(?=\d|,\d)(?P<low>\d*)(?P<comma>,?)(?P<high>\d*)\} (?P<more>[?+]?) )
  | (?P<atom> \\[pPxo]\{[^}]*\} | \\[^gk] | (?P<class>\[\^?(?!\])(?:\\.|[^\[\]\\]|(?&class))*\]) | [^\\()\[] )
"""


@dataclass
class Alternative:
    """One alternative of a group: how many parts of it vary in length, and how many choices its groups offer."""

    n_variable_parts: int = 0
    log2_choices: int = 0


def backtracking_risk(pattern: str, max_variable_parts: int = MAX_VARIABLE_PARTS) -> str | None:
    """Return the reason why a valid pattern may be slow, or None.

    If no match is found, an engine tries every way to divide the text between the variable parts of an alternative,
    with every choice of alternatives in its groups. So these are limited, as in "a?a?a?a?a?b" (5 parts) and
    "(a|b)(c|d)(e|f)" (2**3 choices), and a group that varies must not be repeated.

    >>> backtracking_risk(" ?[^a-z]+[0-9]*|[a-z]+(?! )"), backtracking_risk("(a+)+b")
    (None, 'a repeated group of variable length')
    """
    import regex

    syntax = regex.compile(SYNTAX, regex.VERBOSE | regex.DOTALL)
    groups = [[Alternative()]]  # open groups, from the pattern itself to the innermost one, with their alternatives
    varies = False  # whether what could be repeated next, an atom or a closed group, varies
    position = 0
    while position < len(pattern):
        token = syntax.match(pattern, position)
        if token is None:
            return f"unsupported syntax at character {position}"
        position = token.end()
        if token["open"]:
            groups.append([Alternative()])
        elif token["either"]:
            groups[-1].append(Alternative())
        elif token["close"] and len(groups) > 1:
            varies = _close_group(groups)
        elif token["repeat"]:
            if varies and token["many"] != "?" and token["high"] not in ("0", "1"):
                return "a repeated group of variable length"
            added = _variable_parts(token)
            groups[-1][-1].n_variable_parts += added
            varies = added > 0
        else:
            varies = False
        if groups[-1][-1].n_variable_parts > max_variable_parts:
            return f"more than {max_variable_parts} optional or repeated parts in a row"
        if groups[-1][-1].log2_choices > MAX_LOG2_CHOICES:
            return "many groups of alternatives in a row"
    return None


def _close_group(groups: list[list[Alternative]]) -> bool:
    """Add the innermost group to the alternative it belongs to, and return whether it varies.

    It contributes as much as its largest alternative, plus the choice among the alternatives.
    """
    closed = groups.pop()
    variable_parts = max(alternative.n_variable_parts for alternative in closed)
    outer = groups[-1][-1]
    outer.n_variable_parts += variable_parts
    outer.log2_choices += max(alternative.log2_choices for alternative in closed) + (len(closed) - 1).bit_length()
    return variable_parts > 0 or len(closed) > 1


def _variable_parts(repeat: Any) -> int:
    """Return how many variable parts a repetition is: 0 for {3}, and 3 for {1,3}+, which repeats the repetition."""
    if repeat["low"] and not repeat["comma"] and not repeat["more"]:
        return 0
    return 3 if repeat["more"] == "+" else 1
