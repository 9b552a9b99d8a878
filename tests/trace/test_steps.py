"""The line of PyTorch of each step runs and gives the numbers of the trace."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.nn import functional

import inlayer
from inlayer.errors import InputError
from inlayer.trace import Change, Pipeline, Trace
from inlayer.trace.steps import setup_code
from inlayer.trace.terminal import show
from tests.trace.pipelines import family, random_bytes, sample
from tests.trace.test_backward import trainable

PIPELINES = {
    "default": lambda: sample("default"),
    "minilm": lambda: sample("minilm"),
    "gemma3": lambda: family("gemma3_text-new"),
    "gpt2": lambda: family("gpt2"),
    "opt": lambda: family("opt-projected"),
    "roberta": lambda: family("roberta"),
    "random": lambda: random_bytes("sinusoidal"),
    "none": lambda: random_bytes("none"),
}


class Shell:
    """Runs the code of one trace with the names of docs/trace.md."""

    def __init__(self, pipeline: Pipeline, trace: Trace, texts: list[str]) -> None:
        layer, head = trainable(pipeline)  # in float32, with trainable rows
        self.steps = trace.steps
        self.names: dict[str, Any] = {
            "text": texts[0], "texts": texts, "tokenizer": pipeline.tokenizer, "torch": torch, "F": functional,
            "layer": layer, "head": head, "E": layer.token_embedding.weight, "inlayer": inlayer,
        }  # fmt: skip

    def run(self, number: int) -> Any:
        """Run the code of a step; return its value, or what it assigned."""
        *before, last = self.steps[number - 1].code.split("; ")
        for statement in before:
            exec(statement, self.names)
        if " = " not in last:
            return eval(last, self.names)
        exec(last, self.names)
        found = [self.names[name.strip()] for name in last.partition("[0, [")[0].partition(" = ")[0].split(",")]
        return found if len(found) > 1 else found[0]


CASES = [
    (["I love dogs"], Change()),
    (["I love dogs and dogs", "dogs"], Change()),
    (["I love dogs"], Change(swap=(0, 2), pad=2)),
    (["I love dogs and dogs", "dogs"], Change(pad=1)),
]


WITHOUT_PADDING = ("gpt2",)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, marks=[pytest.mark.slow] if case and name not in ("default", "minilm") else [])
        for name in PIPELINES
        for case in range(1 if name in WITHOUT_PADDING else len(CASES))
    ],
)
def test_code_of_each_step_reproduces_the_trace(name: str, case: int) -> None:
    pipeline: Pipeline = PIPELINES[name]()
    texts, change = CASES[case]
    assert (pipeline.padding_id is None) == (name in WITHOUT_PADDING)
    trace = pipeline.walk(texts, change=change)
    shell = Shell(pipeline, trace, texts)
    several = len(texts) > 1

    characters = ["".join(one.bytes for one in text.characters) for text in trace.texts]
    listed = shell.run(1) if several else [shell.run(1)]
    assert [bytes(one).hex() for one in listed] == characters
    splits = [None if text.pre_tokens is None else [split.span for split in text.pre_tokens] for text in trace.texts]
    assert (shell.run(2) if several else [shell.run(2)]) == splits
    shell.run(3)
    assert shell.names["ids"].tolist() == [[token.id for token in text.tokens] for text in trace.texts]
    if "mask" in shell.names:
        assert shell.names["mask"].tolist() == [[token.mask for token in text.tokens] for text in trace.texts]
    first = trace.texts[0].tokens
    assert shell.run(4)[:8].tolist() == first[0].row
    assert shell.run(5)[..., :8].tolist() == [[token.row for token in text.tokens] for text in trace.texts]
    ordered = shell.run(6)
    if trace.positions.scheme == "rotary":
        cos, _ = ordered
        torch.testing.assert_close(cos[1, :8], torch.tensor(first[1].rotations[0].cos), rtol=0.01, atol=0.01)
    elif trace.positions.scheme == "none":
        assert ordered is shell.names["rows"]
    else:
        place = [stage.name for stage in trace.stages].index("position")
        theirs = torch.tensor([[token.stages[place].output for token in text.tokens] for text in trace.texts])
        torch.testing.assert_close(ordered[..., :8], theirs, rtol=1e-6, atol=1e-6)
    hidden = torch.tensor([[token.hidden for token in text.tokens] for text in trace.texts])
    torch.testing.assert_close(shell.run(7)[..., :8], hidden, rtol=1e-6, atol=1e-6)
    assert trace.backward is not None
    gradients = shell.run(8)
    by_id = {row.id: torch.tensor(row.total) for row in trace.backward.rows}
    for b, text in enumerate(trace.texts):
        for t, token in enumerate(text.tokens):
            assert token.id is not None
            torch.testing.assert_close(by_id[token.id], gradients[b, t, :8], rtol=1e-4, atol=1e-6)


def test_vectors_skip_the_steps_before_them() -> None:
    pipeline = random_bytes("learned")
    trace = pipeline.walk(None, inputs_embeds=torch.zeros(1, 2, 8))
    assert [step.code == "" for step in trace.steps] == [True, True, True, True, False, False, False, True]
    assert len(trace.steps) == 8


def run_printed_code(
    trace: Trace, columns: int = 80, step: int | None = None, tokenizer: str | None = None, embeds: str | None = None
) -> dict[str, Any]:
    """Run the code in the terminal output as printed, as if it were pasted; returns its names."""
    console = Console(file=io.StringIO(), width=columns, force_terminal=True, color_system="truecolor", highlight=False)
    show(trace, console, step=step, tokenizer=tokenizer, embeds=embeds)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    setup, _, steps = printed.partition("\n\n")
    code, later = (re.findall(r"\x1b\[2;36m(.*?)\x1b\[0m", part) for part in (setup, steps))  # dim cyan is code
    code += [line.strip() for line in later]  # indented, or beside a title
    assert len(code) >= (5 if step is None or step > 3 else 4)  # steps 1 to 3 need only the tokenizer
    names: dict[str, Any] = {"code": code}
    exec("\n".join(code), names)
    return names


CHANGES = [Change(), Change(swap=(0, 2), pad=1), Change(positions="learned"), Change(positions="rotary", theta=100.0)]


@pytest.mark.parametrize("change", CHANGES, ids=repr)
@pytest.mark.parametrize("name", ["default", "minilm"])
def test_printed_code_runs_on_a_loaded_model(name: str, change: Change) -> None:
    trace = sample(name).walk(["I love dogs"], change=change)
    for columns in (80, 140):
        names = run_printed_code(trace, columns)
        assert names["ids"].tolist() == [[token.id for token in trace.texts[0].tokens]]
        hidden = [token.hidden for token in trace.texts[0].tokens]
        if change.positions != "learned":  # learned positions are drawn again
            assert names["hidden"][0, :, :8].detach().double().tolist() == hidden
        assert names["E"].grad[names["ids"]].shape == (*names["ids"].shape, trace.table.shape[1])


@pytest.mark.parametrize("step", range(1, 9))
def test_printed_code_of_a_single_step_runs(step: int) -> None:
    run_printed_code(sample("default").walk(["I love dogs"]), step=step)
    run_printed_code(sample("default").walk(["I love dogs", "dogs"]), step=step)


@pytest.mark.parametrize("texts", [["dogs love dogs"], ["I love dogs", "dogs"]])
@pytest.mark.parametrize("positions", ["none", "learned", "sinusoidal", "rotary"])
def test_printed_code_of_a_random_table_runs(positions: str, texts: list[str]) -> None:
    tokenizer = inlayer.WordTokenizer.from_text("\n".join(texts))
    trace = Pipeline.random(texts, tokenizer, positions=positions, seed=3).walk(texts)
    names = run_printed_code(trace)
    assert "Pipeline" not in "".join(names["code"])  # public calls only
    ours = names["hidden"].detach().double().tolist()
    assert ours == [[token.hidden for token in text.tokens] for text in trace.texts]


def test_printed_code_for_vectors_runs() -> None:
    names = run_printed_code(sample("default").walk(None, inputs_embeds=torch.ones(3, 128)))
    assert names["hidden"].shape == (1, 3, 128)
    assert not any(re.search(r"\bids\b", line) for line in names["code"])


def test_printed_code_loads_the_vectors_of_a_file(tmp_path: Path) -> None:
    vectors = torch.randn(3, 128, generator=torch.Generator().manual_seed(0))
    np.save(tmp_path / "v.npy", vectors.numpy())
    names = run_printed_code(sample("default").walk(None, inputs_embeds=vectors), embeds=str(tmp_path / "v.npy"))
    assert torch.equal(names["inputs_embeds"], vectors[None])
    assert names["hidden"].shape == (1, 3, 128)


def test_notes_of_a_byte_tokenizer_and_of_no_positions() -> None:
    steps = random_bytes("none").walk(["Hi"]).steps
    assert steps[1].note == "a byte tokenizer has no pre-tokens"
    assert steps[3].note.endswith("in memory; row 256 is an additional row for padding")
    assert steps[5].code == "rows"


LONG = "one two three four five six " * 12
WINDOWS: list[tuple[list[str], dict[str, Any]]] = [
    ([""], {}),
    (["  "], {}),
    (["", "dogs"], {}),
    (["a"], {"change": Change(pad=3)}),
    ([""], {"change": Change(pad=3)}),
    ([LONG], {"change": Change(swap=(0, 2), pad=2)}),
    ([LONG, "seven eight nine", ""], {}),
    (["dogs", "seven eight nine", *["more texts"] * 9, LONG], {"change": Change(pad=1)}),
    (["one two three four"], {"first_token": 2, "change": Change(swap=(0, 1))}),
    (["one two three four"], {"first_token": 1, "max_tokens": 2, "change": Change(swap=(1, 2))}),
    (["one two", LONG], {"first_token": 1, "max_tokens": 1}),
]


@pytest.mark.parametrize("case", range(len(WINDOWS)))
@pytest.mark.parametrize("kind", ["default", "words", "bytes"])
def test_printed_code_of_empty_long_and_partial_texts_runs(kind: str, case: int) -> None:
    texts, settings = WINDOWS[case]
    words, data = inlayer.WordTokenizer.from_text("\n".join(texts)), inlayer.ByteTokenizer()
    pipeline = sample("default") if kind == "default" else Pipeline.random(texts, words if kind == "words" else data)
    names = run_printed_code(pipeline.walk(texts, **settings))
    written = names["texts"] if len(texts) > 1 else [names["text"]]
    if "first_token" not in settings:
        assert all(one == text[: len(one)] for one, text in zip(written, texts, strict=False))
    assert names["hidden"].shape[:2] == names["ids"].shape


AWKWARD = [
    "don't \\ say \"no\"  twice,\tor\r\nwrap", "字" * 59, "e\u0301" * 70, "🙂🏽 \u202e\x1b[31m " * 4, "שלום עולם " * 6,
    "x" * 240, "a\\" * 100, "  two  " * 30,
]  # fmt: skip


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("text", AWKWARD, ids=range(len(AWKWARD)))
def test_printed_code_contains_the_exact_text(text: str, columns: int) -> None:
    pipeline = random_bytes("none")
    assert run_printed_code(pipeline.walk([text]), columns, step=7)["text"] == text
    assert run_printed_code(pipeline.walk([text[:100], "b"]), columns, step=3)["texts"] == [text[:100], "b"]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 80])
def test_printed_code_of_long_texts_runs_on_their_beginning(columns: int) -> None:
    pipeline = random_bytes("rotary")
    for text in ["I love dogs. " * 30, "字" * 1000]:
        trace = pipeline.walk([text], change=Change(swap=(3, 200), pad=1))
        names = run_printed_code(trace, columns)
        assert names["text"] == text[: len(names["text"])]
        assert 60 <= len(names["text"]) < len(text)
        assert names["ids"][0, 3] == trace.texts[0].tokens[3].id
        assert any(line.startswith(f"# only the first {len(names['text'])} ") for line in names["code"])
    code = run_printed_code(pipeline.walk(["I love dogs and cats"], max_tokens=2), columns)["code"]
    assert any(line.startswith("# only a part of your text") for line in code)
    texts = ["I love dogs. " * 30, "", *["dogs"] * 400]
    names = run_printed_code(pipeline.walk(texts), columns)
    assert names["texts"] == [texts[0][:60], "", "dogs", "dogs"]
    with pytest.raises(InputError, match="the first text shows tokens 0 to 255"):
        pipeline.walk(["I love dogs. " * 300], change=Change(swap=(3, 300)))
    with pytest.raises(InputError, match=r"the first text shows only one token$"):
        pipeline.walk(["d"], change=Change(swap=(5, 6)))


@pytest.mark.parametrize("name", [None, "default"], ids=["random", "loaded"])
def test_printed_code_opens_the_tokenizer_file(tmp_path: Path, name: str | None) -> None:
    file = tmp_path / "it's a שם" / "tokenizer.json"
    file.parent.mkdir()
    file.write_bytes((Path(inlayer.__file__).parent / "samples" / "default" / "tokenizer.json").read_bytes())
    tokenizer = inlayer.open_tokenizer(file)
    pipeline = (
        Pipeline.random(["dogs"], tokenizer) if name is None else Pipeline(inlayer.load(name), tokenizer=tokenizer)
    )
    trace = pipeline.walk(["I love dogs"])
    names = run_printed_code(trace, 40, tokenizer=str(file))
    assert names["hidden"][0, :, :8].double().tolist() == [token.hidden for token in trace.texts[0].tokens]


@pytest.mark.parametrize("quantized", [False, True])
def test_printed_code_of_a_gguf_runs(tmp_path: Path, quantized: bool) -> None:
    from tests.checkpoint.test_gguf_store import Q8_0, TOKENS, VALUES, quants, rows, write_gguf

    table = (quants.quantize(rows(4), Q8_0), "Q8_0") if quantized else (rows(4), None)
    tensors = {"token_embd.weight": table}
    file = write_gguf(tmp_path / "m.gguf", values=VALUES, tokenizer=TOKENS, tensors=tensors)
    trace = Pipeline(inlayer.load(file)).walk(["abba"])
    names = run_printed_code(trace)
    assert names["hidden"][0, :, :8].double().tolist() == [token.hidden for token in trace.texts[0].tokens]


def test_texts_are_written_into_the_code_if_they_are_short() -> None:
    assert "text = 'na\u00efve'" in setup_code(sample("default").walk(["na\u00efve"]))
    assert "text = '\\u05e9'" in setup_code(sample("default").walk(["\u05e9"]))
    layer = Pipeline.from_layer(inlayer.Embeddings(256, 8, seed=0), inlayer.ByteTokenizer(), source="mine")
    assert setup_code(layer.walk(["a"])) == []
