"""The line of PyTorch of each step runs and gives the numbers of the trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from inlayer.positions import LearnedPositions, SinusoidalPositions
from inlayer.trace import Change, Pipeline, Trace
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
            "layer": layer, "head": head, "E": layer.token_embedding.weight,
        }  # fmt: skip
        if isinstance(layer.position_embedding, (LearnedPositions, SinusoidalPositions)):
            self.names["position_ids"] = torch.tensor(
                [[token.position for token in text.tokens] for text in trace.texts]
            )
            last = int(self.names["position_ids"].max())
            self.names["P"] = layer.position_embedding(torch.arange(last + 1))
            if bool((self.names["position_ids"] == -1).any()):  # OPT's padding: index -1, the last row
                lowest = layer.position_embedding(torch.tensor([-1]))
                self.names["P"] = torch.cat((self.names["P"], lowest))
        if layer.token_type_embedding is not None:
            self.names["S"] = layer.token_type_embedding.weight

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
        theirs = torch.tensor([[token.stages[place].after for token in text.tokens] for text in trace.texts])
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
