"""Error messages: Typer's in plain words, and the library's with the names of options instead of arguments.

Tested in tests/test_cli.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import chain
from typing import Any

from typer.exceptions import TyperException

from inlayer.cli.app import SUFFIXES
from inlayer.errors import CheckpointError, MissingFileError
from inlayer.files import format_path, quote

TYPER_MESSAGES = {  # Typer's wording -> ours
    r"^Invalid value for '(\S+?)': (.+) is not (a valid|in the range|one of) (.+)\.$": r"\1 is \2; it must be \3 \4",
    r"in the range (\S+)<=x<=(\S+)$": r"in \1..\2",
    r"in the range x>=(\S+)$": r"at least \1",
    r"a valid int(eger)?( range)?$": "an integer",
    r"a valid float( range)?$": "a number",
    r"^No such command '(.*?)'\.": r"unknown command '\1'.",
    r"\. Did you mean": "; did you mean",
    r"^Missing": "missing",
    r"^Option": "option",
    r"^Got unexpected extra argument\S* \((.+)\)": r"unexpected argument: \1 (quote an argument that contains spaces).",
}
TEXT_ARGUMENTS = {"query", "texts"}
NO_LAYER = {  # for a model whose config is not understood
    r"inlayer\.families\.FAMILIES": "docs/families.md",
    r"\. For another model, build its layer with .*(?=\. Its rows can still be)": "",
    r"Its rows can still be looked up: load\(.*": "To read its table: inlayer inspect, neighbors, or map",
}
OPEN_TOKENIZER = {r", or open one with inlayer\.open_tokenizer\(path\)": ""}
ADVICE = {  # by command: pattern for Python advice -> advice for the command line
    "walk": {
        "choose one, or pass inputs_embeds":
        "choose one with --tokenizer FOLDER, or pass vectors with --embeds FILE.npy",
        r"(^|either texts or |combined with )inputs_embeds(?=[ ,]|$)": r"\1--embeds",
        "^swap and pad apply": "--swap and --pad apply",
        "them with positions": "them with --positions",
        **NO_LAYER,
    },
    "serve": NO_LAYER,
    "embed": OPEN_TOKENIZER,
    "search": OPEN_TOKENIZER,
    "neighbors": {"look up token ids or vectors": "look up a token with --id"},
    "map": {'the method "pca"': "--method pca"},
    "analogy": {", or look up token ids or vectors": ""},
    "evaluate": {", or look up token ids or vectors": ""},
}  # fmt: skip


def error_message(error: Exception, arguments: list[str], app: Any) -> str:
    """Return the message for an error from Typer or inlayer, for the command in these arguments."""
    names, command = _find_command(arguments, app)
    if isinstance(error, TyperException):
        message = _usage_message(error, arguments, names, command)
        help_command = f"{' '.join(['inlayer', *names])} --help"
        if message.endswith("?"):
            return f"{message} See {help_command}"
        return f"{message[:-1]}; see {help_command}" if message.endswith(".") else message
    if isinstance(error, (CheckpointError, MissingFileError)):  # the message names a path, or fields of a file
        return str(error) + _forgotten_option(str(error), command, arguments)
    return _use_option_names(str(error), " ".join(names), command, arguments)


def _usage_message(error: TyperException, arguments: list[str], names: list[str], command: Any) -> str:
    """Describe the problem with a command's arguments. A message without other advice ends with a period."""
    if hasattr(error, "possibilities") and hasattr(error, "option_name"):
        option = error.option_name
        if argument := _argument_like(option, command):
            return f"unknown option {option}; {argument}."
        similar = _similar_options(option, chain(*(param.opts for param in command.params), ["--help"]))
        return f"unknown option {option}" + (f"; did you mean {', '.join(similar)}?" if similar else ".")
    message = error.format_message()
    if message.startswith("No such command") and not names and " " in arguments[0]:
        problem = f"unknown command {quote(arguments[0])}"
        return f"{problem}; to see what happens to a text: inlayer walk {shlex.quote(arguments[0])}"
    for pattern, wording in TYPER_MESSAGES.items():
        message = re.sub(pattern, wording, message)
    return message


def _similar_options(option: str, known: Iterable[str]) -> list[str]:
    """Return the options with similar names. Typer also compares dashes, so it would often suggest --help."""
    names, given = {name.lstrip("-"): name for name in known}, option.lstrip("-")
    longer = [name for name in names if len(given) > 2 and name.startswith(given)]
    return [names[name] for name in dict.fromkeys([*longer, *get_close_matches(given, names)])]


def _argument_like(option: str, command: Any) -> str:
    """Return a hint if an option looks like an argument (`embed --file x`) or a text; otherwise ""."""
    name = option.lstrip("-").removesuffix("s")
    for param in command.params:
        words = re.findall(r"[a-z]+", f"{param.name} {param.metavar or ''}".lower())
        if not param.opts[0].startswith("-") and name in {word.removesuffix("s") for word in words}:
            hint = f"{name}s are arguments" if param.nargs < 0 else f"the {name} is an argument"
            return f"{hint}, without an option before {'them' if param.nargs < 0 else 'it'}"
    if not option.startswith("--") and any(param.name in TEXT_ARGUMENTS for param in command.params):
        return 'to pass a text that starts with "-", write -- before it'
    return ""


def _forgotten_option(message: str, command: Any, arguments: list[str]) -> str:
    """Suggest the option for an output file that was passed as a source."""
    options = {option for param in command.params for option in param.opts}
    for name, suffixes in SUFFIXES.items():
        for file in arguments:
            if file.lower().endswith(suffixes) and message.startswith(f"{format_path(file)}: not found"):
                return f"; did you mean --{name} {shlex.quote(file)}?" if f"--{name}" in options - {*arguments} else ""
    return ""


def _use_option_names(message: str, name: str, command: Any, arguments: list[str]) -> str:
    """Replace the library's argument names in a message with this command's options.

    A name with an underscore is replaced wherever it occurs, except in a path or as a field of a config. A plain word
    is replaced only if its option was used, and only where it is the subject.
    """
    for pattern, replacement in ADVICE.get(name, {}).items():
        message = re.sub(pattern, replacement, message)
    used = {argument.partition("=")[0] for argument in arguments}
    for param in command.params:
        option = max(param.opts, key=len)
        if option.startswith("-") and "_" in param.name:
            message = re.sub(rf"(?<!config's )(?<![\w./\\'\"-]){param.name}(?![\w/\\=-]|\.\w)", option, message)
        elif option in used:
            subject = rf"^(the rotary base )?(?!text \d){param.name}(?= (?:is|must|do|applies|\d|'))"  # not "text 1"
            message = re.sub(subject, rf"\1{option}", message)
    return message


def _find_command(arguments: list[str], command: Any) -> tuple[list[str], Any]:
    """Return the command that ran and its names: `learn check` has two names."""
    names: list[str] = []
    for argument in arguments:
        inner = getattr(command, "commands", {}).get(argument)
        if inner is None:
            break
        names, command = [*names, argument], inner
    return names, command
