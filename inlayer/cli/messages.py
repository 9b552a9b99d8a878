"""Error messages of the command line: Typer's in plain words, and the library's with names of options, not arguments.

Tested in tests/test_cli.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from itertools import chain
from typing import Any

from typer.exceptions import TyperException

from inlayer.cli.app import SUFFIXES
from inlayer.errors import CheckpointError, MissingFileError
from inlayer.files import format_path, quote

TYPER_MESSAGES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (  # Typer's wording, and inlayer's
    (
        r"Invalid value for '(\S+?)': (.+) is not a valid int(?:eger)?(?: range)?\.",
        r"\1 is \2; it must be an integer",
    ),
    (r"Invalid value for '(\S+?)': (.+) is not a valid float(?: range)?\.", r"\1 is \2; it must be a number"),
    (r"Invalid value for '(\S+?)': (.+) is not in the range (\S+?)<=x<=(\S+?)\.", r"\1 is \2; it must be in \3..\4"),
    (r"Invalid value for '(\S+?)': (.+) is not in the range x>=(\S+?)\.", r"\1 is \2; it must be at least \3"),
    (r"Invalid value for '(\S+?)': (.+?) is not one of (.+)\.", r"\1 is \2; it must be one of \3"),
    (
        r"Got unexpected extra argument(?:\(s\)|s)? \((.+)\)",
        r"unexpected argument: \1 (quote an argument that contains spaces).",
    ),
    (r"Missing argument '(.+)'\.", lambda found: f"missing argument: {found[1].upper()}."),
    (r"Missing option '(\S+)'\.", r"missing option: \1."),
    (r"Option '(\S+)' requires an argument\.", r"\1 needs a value."),
    (r"Option '(\S+)' does not take a value\.", r"\1 does not take a value."),
    (r"No such option: (\S+) \(Possible options: (.+)\)", r"unknown option \1; did you mean \2?"),
    (r"No such option: (\S+); did you mean (.+)\?", r"unknown option \1; did you mean \2?"),
    (r"No such option: (\S+)", r"unknown option \1."),
    (r"No such command '(.+?)'\.(?: (?i:did you mean) '?(.+?)'?\?)?", r"unknown command \1; did you mean \2?"),
)
ALIASES = {  # by command: library arguments whose options have other names, and those that are also plain words
    "walk": {
        "inputs_embeds": "--embeds", "swap and pad": "--swap and --pad", "theta applies": "--theta applies",
        "theta is": "--theta is", "with positions": "with --positions", "unknown positions": "unknown --positions",
    },
}  # fmt: skip

TEXT_ARGUMENTS = {"query", "texts"}
ADVICE = {  # what to do in Python, and with the options of a command
    "walk": {
        "choose one, or pass inputs_embeds":
        "choose one with --tokenizer FOLDER, or pass vectors with --embeds FILE.npy",
    },
    "neighbors": {"look up token ids or vectors": "look up a token with --id"},
    "map": {'the method "pca"': "--method pca"},
    "analogy": {", or look up token ids or vectors": ""},
    "evaluate": {", or look up token ids or vectors": ""},
}  # fmt: skip


def error_message(error: Exception, arguments: list[str], app: Any) -> str:
    """Return the message of an error of Typer or inlayer, for the command that these arguments name."""
    names, command = _find_command(arguments, app)
    if isinstance(error, TyperException):
        if hasattr(error, "possibilities") and hasattr(error, "option_name"):  # Typer compares long options only
            if argument := _argument_like(error.option_name, command):
                return f"unknown option {error.option_name}; {argument}. See inlayer {' '.join(names)} --help"
            known = chain(*(parameter.opts for parameter in command.params), ["--help"])
            error.possibilities = _similar_options(error.option_name, known)
        message = error.format_message()
        if message.startswith("No such command") and not names and " " in arguments[0]:
            unknown = f"unknown command {quote(arguments[0])}"
            return f"{unknown}; to see what happens to a text: inlayer walk {shlex.quote(arguments[0])}"
        return _usage_message(message, names)
    if isinstance(error, (CheckpointError, MissingFileError)):  # it names fields of a file, or a path
        return str(error) + _forgotten_option(str(error), command, arguments)
    return _use_option_names(str(error), " ".join(names), command, arguments)


def _similar_options(option: str, known: Iterable[str]) -> list[str]:
    """Return the options whose names are similar; Typer also counts the dashes, so it would suggest --help often."""
    names, given = {name.lstrip("-"): name for name in known}, option.lstrip("-")
    longer = [name for name in names if len(given) > 2 and name.startswith(given)]
    return [names[name] for name in dict.fromkeys([*longer, *get_close_matches(given, names)])]


def _argument_like(option: str, command: Any) -> str:
    """Explain that an option is an argument, if that is its name (`embed --file x`), or that it may be a text."""
    name = option.lstrip("-").removesuffix("s")
    for parameter in command.params:
        words = re.findall(r"[a-z]+", f"{parameter.name} {parameter.metavar or ''}".lower())
        if not parameter.opts[0].startswith("-") and name in {word.removesuffix("s") for word in words}:
            are = f"{name}s are arguments" if parameter.nargs < 0 else f"the {name} is an argument"
            return f"{are}, without an option before {'them' if parameter.nargs < 0 else 'it'}"
    if not option.startswith("--") and any(parameter.name in TEXT_ARGUMENTS for parameter in command.params):
        return 'to pass a text that starts with "-", write -- before it'
    return ""


def _forgotten_option(message: str, command: Any, arguments: list[str]) -> str:
    """Suggest the option of an output file that was passed as a source."""
    options = {option for parameter in command.params for option in parameter.opts}
    for name, suffixes in SUFFIXES.items():
        for file in arguments:
            if file.lower().endswith(suffixes) and message.startswith(f"{format_path(file)}: not found"):
                return f"; did you mean --{name} {shlex.quote(file)}?" if f"--{name}" in options - {*arguments} else ""
    return ""


def _usage_message(message: str, names: list[str]) -> str:
    """Return Typer's message about wrong arguments in plain words; without other advice, it refers to the help."""
    for pattern, wording in TYPER_MESSAGES:
        if re.fullmatch(pattern, message):
            message = re.sub(pattern, wording, message)
            break
    message = message.replace("; did you mean ?", ".")
    return f"{message} See {' '.join(['inlayer', *names])} --help" if message[-1] in ".?" else message


def _use_option_names(message: str, name: str, command: Any, arguments: list[str]) -> str:
    """Replace arguments of the library in its message with the options of this command.

    A name with an underscore is replaced wherever it occurs, except in a path or as a field of a config. A plain word
    is replaced only if its option was used, and at the start, where it is the subject.
    """
    for words, replacement in ADVICE.get(name, {}).items():
        message = message.replace(words, replacement)
    used = {argument.partition("=")[0] for argument in arguments}
    for words, replacement in ALIASES.get(name, {}).items():
        if not used.isdisjoint(replacement.split()):
            message = message.replace(words, replacement)
    for parameter in command.params:
        option = max(parameter.opts, key=len)
        if option.startswith("-") and "_" in parameter.name:
            message = re.sub(rf"(?<!config's )(?<![\w./\\'\"-]){parameter.name}(?![\w/\\=-]|\.\w)", option, message)
        elif option in used:
            subject = rf"^(?!text \d){parameter.name}(?= (?:is|must|do|applies|\d|'))"  # not in "text 1"
            message = re.sub(subject, option, message)
    return message


def _find_command(arguments: list[str], command: Any) -> tuple[list[str], Any]:
    """Return the names of the command that ran, and its object: `learn check` is two names."""
    names: list[str] = []
    for argument in arguments:
        inner = getattr(command, "commands", {}).get(argument)
        if inner is None:
            break
        names, command = [*names, argument], inner
    return names, command
