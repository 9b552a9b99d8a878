"""Regular expressions in untrusted tokenizer files: those that can take exponential time are rejected.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- Oniguruma, the engine of `tokenizers`, gives up on one match after 10 million steps, about 0.3 s. A file can need
  almost that many at every character, in many patterns. Patterns of published tokenizers are alternatives of a few
  repeated characters and classes, so anything else is an error when the file is opened
- a pattern that passes can still take polynomial time, as those of GPT-2 and its successors do: on a long text, not on
  a sentence
- elsewhere: other limits of a tokenizer.json (untrusted_files.py). tiktoken's engine has a limit of its own
Tested in tests/tokenizers/test_patterns.py.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["slow_part"]

MAX_VARIABLE = 4  # optional and repeated parts in a row, as in published patterns
MAX_CHOICES = 6  # log2 of the ways to choose alternatives in a row; 3 in published patterns
SYNTAX = r"""
    (?P<open> \( (?: \?(?: [ims-]*: | [=!>] | <[=!] | <\w+> ) | (?!\?) ) )
  | (?P<flags> \(\?[ims-]+\) )
  | (?P<close> \) )
  | (?P<either> \| )
  | (?P<repeat> (?P<many>[*+]|\?) [?+]? | \{(?=\d|,\d)(?P<low>\d*)(?P<comma>,?)(?P<high>\d*)\} (?P<more>[?+]?) )
  | (?P<atom> \\[pPxo]\{[^}]*\} | \\[^gk] | (?P<class>\[\^?(?!\])(?:\\.|[^\[\]\\]|(?&class))*\]) | [^\\()\[] )
"""


@dataclass
class Group:
    """An open group: variable parts and choices of the current alternative, and the most of those before."""

    parts: int = 0
    choices: int = 0
    most_parts: int = 0
    most_choices: int = 0
    alternatives: int = 1

    def next_alternative(self) -> None:
        self.most_parts, self.parts = max(self.most_parts, self.parts), 0
        self.most_choices, self.choices = max(self.most_choices, self.choices), 0
        self.alternatives += 1


def slow_part(pattern: str) -> str | None:
    """What makes a valid pattern potentially slow, or None.

    >>> slow_part(" ?[^a-z]+[0-9]*|[a-z]+(?! )"), slow_part("(a+)+b")
    (None, 'a repeated group of variable length')
    """
    import regex

    groups, position, varies = [Group()], 0, False
    syntax = regex.compile(SYNTAX, regex.VERBOSE | regex.DOTALL)
    while position < len(pattern):
        found = syntax.match(pattern, position)
        if found is None:
            return f"unsupported syntax at character {position}"
        position = found.end()
        if found["open"]:
            groups.append(Group())
        elif found["close"] and len(groups) > 1:
            closed = groups.pop()
            parts = max(closed.parts, closed.most_parts)
            groups[-1].parts += parts
            groups[-1].choices += max(closed.choices, closed.most_choices) + (closed.alternatives - 1).bit_length()
            varies = parts > 0 or closed.alternatives > 1
        elif found["either"]:
            groups[-1].next_alternative()
        elif found["repeat"]:
            if varies and found["many"] != "?" and found["high"] not in ("0", "1"):
                return "a repeated group of variable length"
            is_fixed = bool(found["low"]) and not found["comma"] and not found["more"]
            groups[-1].parts += 0 if is_fixed else 3 if found["more"] == "+" else 1  # {1,3}+ repeats it once more
            varies = not is_fixed
        else:
            varies = False
        if groups[-1].parts > MAX_VARIABLE:
            return f"more than {MAX_VARIABLE} optional or repeated parts in a row"
        if groups[-1].choices > MAX_CHOICES:
            return "many groups of alternatives in a row"
    return None
