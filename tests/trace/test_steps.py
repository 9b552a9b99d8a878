"""The one line of PyTorch of every step is run, and gives the numbers of the trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from inlayer.positions import Learned, Sinusoidal
from inlayer.trace import Line
from tests.trace.lines import bytes_line, family, sample
from tests.trace.test_backward import whole

LINES = {
    "default": lambda: sample("default"),
    "minilm": lambda: sample("minilm"),
    "gemma3": lambda: family("gemma3_text-new"),
    "gpt2": lambda: family("gpt2"),
    "newborn": lambda: bytes_line("sinusoidal"),
    "none": lambda: bytes_line("none"),
}


@pytest.mark.parametrize("name", LINES)
def test_the_lines_of_code_do_what_the_steps_show(name: str) -> None:
    line: Line = LINES[name]()
    text = "I love dogs"
    trace = line.walk([text])
    layer, head = whole(line)  # float32: the samples in files have no parameters to learn with
    names: dict[str, Any] = {
        "text": text, "tokenizer": line.tokenizer, "torch": torch, "F": functional, "layer": layer, "head": head,
        "E": layer.token_embedding.weight,
    }  # fmt: skip
    if isinstance(layer.position_embedding, (Learned, Sinusoidal)):
        names["position_ids"] = torch.tensor([cell.position for cell in trace.texts[0].cells])
        names["P"] = layer.position_embedding(torch.arange(20))

    def run(number: int) -> Any:
        code = trace.steps[number - 1].code
        target, _, value = code.rpartition("; ")
        if target:
            exec(target, names)
        assigned, _, expression = value.partition(" = ")
        if not expression:
            return eval(value, names)
        exec(value, names)
        return (
            names[assigned.split(",")[0]]
            if "," not in assigned
            else [names[one.strip()] for one in assigned.split(",")]
        )

    cells = trace.texts[0].cells
    assert bytes(run(1)).hex() == "".join(character.bytes for character in trace.texts[0].characters)
    splits = trace.texts[0].splits
    assert run(2) == (None if splits is None else [split.span for split in splits])
    assert run(3)[0].tolist() == [cell.id for cell in cells]
    assert run(4)[:8].tolist() == cells[0].row
    assert run(5)[0, :, :8].tolist() == [cell.row for cell in cells]
    ordered = run(6)
    if trace.positions.scheme == "rotary":
        cos, _ = ordered
        torch.testing.assert_close(cos[1, :8], torch.tensor(cells[1].turns[0].cos), rtol=0.01, atol=0.01)
    elif trace.positions.scheme == "none":
        assert ordered is names["rows"]
    elif [stage.name for stage in trace.stages] == ["position"]:
        assert ordered[0, :, :8].tolist() == [cell.stages[0].after for cell in cells]
    torch.testing.assert_close(run(7)[0, :, :8], torch.tensor([cell.hidden for cell in cells]), rtol=1e-6, atol=1e-6)
    assert trace.backward is not None
    gradients = run(8)[0]
    by_id = {row.id: torch.tensor(row.total) for row in trace.backward.rows}
    for cell, theirs in zip(cells, gradients, strict=True):
        assert cell.id is not None
        torch.testing.assert_close(by_id[cell.id], theirs[:8], rtol=1e-4, atol=1e-6)


def test_vectors_skip_the_steps_before_them() -> None:
    line = bytes_line("learned")
    trace = line.walk(None, inputs_embeds=torch.zeros(1, 2, 8))
    assert [step.code == "" for step in trace.steps] == [True, True, True, True, False, False, False, True]
    assert len(trace.steps) == 8
