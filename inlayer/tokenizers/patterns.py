"""Regular expressions in untrusted tokenizer files: those that can take exponential time are rejected.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- Oniguruma, the engine of `tokenizers`, gives up on one match after 10 million steps, about 0.3 s. A file can need
  almost that many at every character, in many patterns. Patterns of published tokenizers are alternatives of a few
  repeated characters and classes, so anything else is an error when the file is opened
- a pattern that passes can still take quadratic time, as those of GPT-2 and its successors do
- elsewhere: other limits of a tokenizer.json (untrusted_files.py). tiktoken's engine has a limit of its own
Tested in tests/tokenizers/test_patterns.py.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["slow_part"]

MAX_VARIABLE = 6  # optional and repeated parts in a row; published patterns have up to 4
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
    """An open group: variable parts of the current alternative and of the longest one before."""

    current: int = 0
    longest: int = 0
    alternatives: int = 1

    def parts(self) -> int:
        return max(self.current, self.longest)


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
            groups[-1].current += closed.parts()
            varies = closed.parts() > 0 or closed.alternatives > 1
        elif found["either"]:
            group = groups[-1]
            group.longest, group.current, group.alternatives = group.parts(), 0, group.alternatives + 1
        elif found["repeat"]:
            if varies and found["many"] != "?" and found["high"] not in ("0", "1"):
                return "a repeated group of variable length"
            is_fixed = bool(found["low"]) and not found["comma"] and not found["more"]
            groups[-1].current += 0 if is_fixed else 3 if found["more"] == "+" else 1  # {1,3}+ repeats it once more
            varies = not is_fixed
        else:
            varies = False
        if groups[-1].parts() > MAX_VARIABLE:
            return f"more than {MAX_VARIABLE} optional or repeated parts in a row"
    return None
