"""A trace holds what the library computes, number by number."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import inlayer
from inlayer.errors import IdRangeError, InlayerError, InputError, PositionRangeError, TextError
from inlayer.positions import RotaryPositions
from inlayer.tokenizers import ByteTokenizer
from inlayer.trace import Change, Pipeline, Trace
from inlayer.trace.facts import Cell
from tests.trace.lines import FAMILIES, SAMPLES, bytes_line, family, sample

DIMS = 5


def cells_of(trace: Trace) -> list[tuple[int, int, Cell]]:
    return [(b, t, cell) for b, text in enumerate(trace.texts) for t, cell in enumerate(text.cells)]


def check_numbers(line: Pipeline, texts: list[str]) -> Trace:
    """Every number of a walk against the tokenizer, the table and the layer themselves."""
    tokenizer, layer = line.tokenizer, line.layer
    assert tokenizer is not None
    ids, mask = tokenizer.encode_batch(texts).padded(line.padding_id or 0)
    rows, hidden = layer.token_embedding(ids), layer(ids, attention_mask=mask)
    trace = line.walk(texts, dims=DIMS)
    assert trace.shape == tuple(hidden.shape)
    assert trace.gather.shape == tuple(rows.shape)
    assert trace.gather.equal
    assert len(cells_of(trace)) == ids.numel()
    for b, t, cell in cells_of(trace):
        assert cell.id == ids[b, t]
        assert cell.mask == mask[b, t]
        assert cell.row == rows[b, t, :DIMS].tolist()
        assert cell.hidden == hidden[b, t, :DIMS].tolist()
        assert len(cell.stages) == len(trace.stages)
    if isinstance(layer.position_embedding, RotaryPositions):
        for number, turning in enumerate(trace.positions.turnings):
            cos, sin = layer.rotary(torch.arange(ids.shape[1]), turning.layer_type)
            at = slice(None) if layer.position_embedding.layout != "interleaved" else slice(0, None, 2)
            for _, t, cell in cells_of(trace):
                shown = min(DIMS, turning.pairs)
                assert cell.turns[number].cos == cos[t, at][:shown].tolist()
                assert cell.turns[number].sin == sin[t, at][:shown].tolist()
                angles = torch.tensor(cell.turns[number].angles)
                torch.testing.assert_close((angles.cos() * turning.factor).to(cos.dtype), cos[t, at][:shown])
    else:
        assert all(cell.turns == [] for *_, cell in cells_of(trace))
    return trace


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_family(name: str, dtype: torch.dtype) -> None:
    texts = ["I love dogs", "I love dogs and the rain"]
    line = family(name, dtype)
    check_numbers(line, texts if line.padding_id is not None else texts[:1])


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample(name: str) -> None:
    line = sample(name)
    check_numbers(line, ["I love dogs, naïve 🙂 漢字", "x"] if line.padding_id is not None else ["naïve 🙂 漢字"])


@pytest.mark.parametrize("positions", ["none", "learned", "sinusoidal", "rotary"])
def test_newborn(positions: str) -> None:
    check_numbers(bytes_line(positions), ["I love dogs", "naïve 🙂", ""])


def test_the_comparison_can_fail() -> None:
    line = bytes_line("learned")
    before = line.walk(["ab"], dims=DIMS)
    with torch.no_grad():
        line.layer.token_embedding.weight[97, 0] += 1
    after = line.walk(["ab"], dims=DIMS)
    assert before.texts[0].cells[0].row != after.texts[0].cells[0].row
    assert before.texts[0].cells[1].row == after.texts[0].cells[1].row


def test_added_positions_add_up() -> None:
    """Before + added = after, in the layer's own arithmetic."""
    for name in ("gpt2", "bert", "opt"):
        line = family(name, torch.bfloat16)
        trace = line.walk(["I love dogs"], dims=DIMS)
        place = [stage.name for stage in trace.stages].index("position")
        for *_, cell in cells_of(trace):
            before = cell.stages[place - 1].after if place else cell.row
            total = torch.tensor(before, dtype=torch.bfloat16) + torch.tensor(
                cell.stages[place].added, dtype=torch.bfloat16
            )
            assert total.tolist() == cell.stages[place].after


def test_scaling_changes_the_angles() -> None:
    plain, scaled = (family(name).walk(["I love dogs"]) for name in ("llama", "llama-3.1"))
    assert all(cell.turns[0].angles == cell.turns[0].plain_angles for *_, cell in cells_of(plain))
    assert scaled.positions.turnings[0].scaling is not None
    assert scaled.texts[0].cells[2].turns[0].angles != scaled.texts[0].cells[2].turns[0].plain_angles


@pytest.mark.parametrize("name", ["default", "minilm", "wordllama"])
def test_a_row_is_where_the_trace_says(name: str) -> None:
    """Byte for byte, read with nothing but `open` and `seek`."""
    line = sample(name)
    trace = line.walk(["I love dogs"], dims=4)
    model = inlayer.load(name)
    assert trace.table.itemsize is not None
    file = next(path for path in _files(model) if path.name == Path(str(trace.table.file)).name)
    unpack = {"F32": "<f", "F16": "<e", "BF16": None}[trace.table.dtype]
    with file.open("rb") as stream:
        for *_, cell in cells_of(trace):
            assert cell.offset is not None
            stream.seek(cell.offset)
            for value, bits in zip(cell.row, cell.bits, strict=True):
                raw = stream.read(trace.table.itemsize)
                assert raw[::-1].hex() == bits
                number = struct.unpack("<f", b"\0\0" + raw) if unpack is None else struct.unpack(unpack, raw)
                assert number[0] == value


def _files(model: inlayer.Model) -> list[Path]:
    return [Path(model.table.source.path)]  # type: ignore[attr-defined]


def test_a_quantized_row_shows_the_bytes_of_its_first_block() -> None:
    line = sample("smollm2")
    trace = line.walk(["I love dogs"], dims=8)
    assert (trace.table.dtype, trace.table.itemsize) == ("Q8_0", None)
    cell = trace.texts[0].cells[1]
    raw = bytes.fromhex("".join(cell.bits))
    scale = struct.unpack("<e", raw[:2])[0]
    quants = struct.unpack("<8b", raw[2:10])
    assert [scale * value for value in quants] == cell.row


def test_one_hot_product_over_the_whole_table_or_the_rows_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    line = bytes_line("none")
    assert line.walk(["ab"]).gather.whole
    monkeypatch.setattr("inlayer.trace.run.MAX_CHECKED", 10)
    gather = line.walk(["ab"]).gather
    assert (gather.whole, gather.equal, gather.checked_rows) == (False, True, 2)
    monkeypatch.undo()
    with torch.no_grad():
        line.layer.token_embedding.weight[5, 3] = torch.inf  # a row that is not even in the text
    line = Pipeline.of_layer(line.tokenizer, line.layer, source="damaged")
    gather = line.walk(["ab"]).gather
    assert not gather.equal
    assert "not finite" in gather.note


def test_vectors_come_in_at_step_five() -> None:
    line = family("bert")
    vectors = torch.randn(2, 3, line.layer.token_embedding.embedding_dim)
    trace = line.walk(None, inputs_embeds=vectors, dims=DIMS)
    hidden = line.layer(inputs_embeds=vectors)
    assert trace.entered == "inputs_embeds"
    for b, t, cell in cells_of(trace):
        assert cell.row == vectors[b, t, :DIMS].tolist()
        assert cell.hidden == hidden[b, t, :DIMS].tolist()
        assert (cell.id, cell.offset, cell.bits) == (None, None, [])
    assert trace.backward is None
    one = line.walk(None, inputs_embeds=vectors[0], dims=DIMS)
    assert [cell.hidden for *_, cell in cells_of(one)] == [cell.hidden for b, _, cell in cells_of(trace) if b == 0]


def test_a_long_text_is_folded_and_counted() -> None:
    line = bytes_line("rotary")
    text = "ab" * 5000
    trace = line.walk([text], tokens=10)
    assert trace.shape == (1, 10_000, 8)
    assert (trace.texts[0].n_tokens, len(trace.texts[0].cells), len(trace.texts[0].characters)) == (10_000, 10, 10)
    hidden = line.layer(torch.tensor([ByteTokenizer().encode(text)]))
    assert [cell.hidden for cell in trace.texts[0].cells] == hidden[0, :10].tolist()


@pytest.mark.parametrize("name", ["roberta", "opt", "llama-dynamic-short"])
def test_folding_changes_no_number(name: str) -> None:
    """Positions that skip padding, and angles that look at the length, are those of the whole batch."""
    line = family(name)
    texts = ["dogs", "I love dogs and cats but not the rain in May"]
    whole, part = line.walk(texts), line.walk(texts, tokens=3)
    for b in range(2):
        for one, other in zip(whole.texts[b].cells[:3], part.texts[b].cells, strict=True):
            assert one == other


def test_a_text_too_long_for_its_positions_is_an_error_even_where_it_is_folded() -> None:
    line = family("gpt2")
    with pytest.raises(PositionRangeError, match="64"):
        line.walk(["dogs " * 65], tokens=3)


def test_past_the_trained_length_rotary_goes_on_and_says_so() -> None:
    assert "64" in family("llama").walk(["dogs " * 65]).positions.note


def test_changes() -> None:
    line = sample("default")
    plain = line.walk(["I love dogs"])
    swapped = line.walk(["I love dogs"], change=Change(swap=(0, 2)))
    ids = [cell.id for cell in plain.texts[0].cells]
    assert [cell.id for cell in swapped.texts[0].cells] == [ids[2], ids[1], ids[0], ids[3]]
    assert swapped.texts[0].cells[0].row == plain.texts[0].cells[2].row
    assert swapped.texts[0].cells[0].turns == plain.texts[0].cells[0].turns  # the turn belongs to the place

    padded = line.walk(["I love dogs"], change=Change(pad=2))
    assert padded.shape == (1, 6, 128)
    assert [cell.mask for cell in padded.texts[0].cells] == [1, 1, 1, 1, 0, 0]
    assert padded.texts[0].cells[:4] == plain.texts[0].cells
    assert padded.texts[0].cells[5].row == [0.0] * 8


@pytest.mark.parametrize("scheme", ["none", "learned", "sinusoidal", "rotary"])
@pytest.mark.parametrize("name", ["default", "minilm"])
def test_other_positions(name: str, scheme: str) -> None:
    line = sample(name)
    own, other = line.walk(["I love dogs"]), line.walk(["I love dogs"], change=Change(positions=scheme))
    assert other.positions.scheme == scheme
    assert other.positions.own == (own.positions.scheme == scheme)
    for (*_, one), (*_, two) in zip(cells_of(own), cells_of(other), strict=True):
        assert one.row == two.row  # positions never change the row
    if other.positions.own:
        assert [cell for *_, cell in cells_of(own)] == [cell for *_, cell in cells_of(other)]
    if scheme == "sinusoidal":
        waves = inlayer.Embeddings(9, line.table.shape[1], positions="sinusoidal").position_embedding
        place = [stage.name for stage in other.stages].index("position")
        cell = other.texts[0].cells[2]
        wave = waves(torch.tensor([2]))[0].to(line.layer.dtype)  # type: ignore[misc]
        assert cell.stages[place].added == wave[:8].tolist()


def test_theta() -> None:
    line = sample("default")
    slow, fast = (line.walk(["I love dogs"], change=Change(theta=theta)) for theta in (1e6, 100.0))
    assert slow.positions.turnings[0].theta == 1e6
    assert slow.texts[0].cells[1].turns[0].angles[0] == fast.texts[0].cells[1].turns[0].angles[0] == 1.0
    assert slow.texts[0].cells[1].turns[0].angles[3] < fast.texts[0].cells[1].turns[0].angles[3]
    with pytest.raises(InputError, match="theta"):
        sample("minilm").walk(["a"], change=Change(theta=5.0))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"texts": []}, "no text"),
        ({"texts": None}, "either"),
        ({"texts": ["a"], "dims": 0}, "dims"),
        ({"texts": ["a"], "tokens": 0}, "tokens"),
        ({"texts": ["a"], "change": Change(swap=(0, 9))}, "token 9"),
        ({"texts": ["a"], "change": Change(swap=(0, -1))}, "token -1"),
        ({"texts": ["a"], "change": Change(pad=-1)}, "pad"),
        ({"texts": ["a"], "change": Change(pad=10**9)}, "pad"),
        ({"texts": ["a"], "change": Change(positions="spiral")}, "spiral"),
        ({"texts": ["a"], "change": Change(positions="rotary", theta=-1.0)}, "theta"),
        ({"texts": ["a"], "change": Change(positions="rotary", theta=float("nan"))}, "theta"),
        ({"texts": ["a"], "change": Change(positions="sinusoidal", theta=float("nan"))}, "theta"),
    ],
)
def test_bad_input_is_a_clear_error(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(InlayerError, match=said):
        sample("default").walk(**arguments)  # type: ignore[arg-type]


def test_a_lone_surrogate_is_a_text_error() -> None:
    with pytest.raises(TextError):
        inlayer.walk("\ud800")


def test_ids_past_the_table_are_an_error() -> None:
    small = inlayer.Embeddings(50, 4)
    line = Pipeline.of_layer(ByteTokenizer(), small, source="small")
    with pytest.raises(IdRangeError, match="97"):
        line.walk(["a"])


def test_without_padding_texts_must_be_of_one_length() -> None:
    line = Pipeline.of_layer(ByteTokenizer(), inlayer.Embeddings(256, 4), source="bare")
    assert line.walk(["ab", "cd"]).shape == (2, 2, 4)
    with pytest.raises(InputError, match="no padding"):
        line.walk(["ab", "c"])
    with pytest.raises(InputError, match="no padding"):
        line.walk(["ab"], change=Change(pad=1))


def test_the_short_way() -> None:
    long = sample("default").walk(["I love dogs"])
    assert inlayer.walk("I love dogs") == long
    assert inlayer.walk(["I love dogs"], "default") == long
    assert inlayer.walk("I love dogs", inlayer.load()) == long
    assert inlayer.walk("I love dogs", pad=1, dims=3).texts[0].n_padding == 1
    assert isinstance(long, inlayer.Trace)


@pytest.mark.parametrize("text", ["", " ", "\0", "🙂", "e\u0301", "<|endoftext|>", "a" * 3000, "\u202eabc\x1b[31m"])
@pytest.mark.parametrize("name", SAMPLES)
def test_odd_texts_walk(name: str, text: str) -> None:
    try:
        trace = sample(name).walk([text])
    except PositionRangeError:
        assert name == "minilm"  # 512 positions
        return
    assert trace.texts[0].n_bytes == len(text.encode())
    assert "\ufffd" not in trace.to_json()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.float64])
def test_every_dtype_of_a_table(tmp_path: Path, dtype: torch.dtype) -> None:
    rows = torch.randn(256, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    save_file({"embed_tokens.weight": rows}, tmp_path / "table.safetensors")
    line = Pipeline(inlayer.load(tmp_path / "table.safetensors"), tokenizer=ByteTokenizer())
    trace = line.walk(["aab"])
    assert [cell.row for cell in trace.texts[0].cells] == rows.double()[[97, 97, 98]].tolist()
    assert trace.gather.equal
    assert line.token(97).row == rows[97].double().tolist()


def test_rows_that_are_added_are_where_the_trace_says() -> None:
    """BERT's position and segment vectors, read from the file with nothing but `seek`."""
    trace = sample("minilm").walk(["I love dogs"], dims=4)
    path = _files(inlayer.load("minilm"))[0]
    with path.open("rb") as stream:
        for *_, cell in cells_of(trace):
            for stage, value in zip(trace.stages, cell.stages, strict=True):
                if stage.name not in ("token type", "position"):
                    assert stage.table is None
                    continue
                assert stage.table is not None
                assert value.row == (cell.position if stage.name == "position" else 0)
                assert value.offset is not None
                stream.seek(value.offset)
                assert list(struct.unpack("<4f", stream.read(16))) == value.added
    waves = sample("minilm").walk(["I love dogs"], change=Change(positions="sinusoidal"))
    assert [stage.table is None for stage in waves.stages if stage.name == "position"] == [True]


@pytest.mark.parametrize("name", ["opt", "roberta"])
def test_positions_in_place_of_ones_that_skip_padding(name: str) -> None:
    trace = family(name).walk(["I love dogs", "dogs"], change=Change(positions="sinusoidal"))
    assert [cell.position for cell in trace.texts[1].cells] == [0, 1, 2]


def test_splits_name_the_cells_that_are_told() -> None:
    line = sample("default")
    folded = line.walk(["antidisestablishmentarianism and so on"], tokens=2)
    assert folded.texts[0].splits is not None
    assert [split.cells for split in folded.texts[0].splits] == [(0, 2)]


@pytest.mark.parametrize("texts", [5, b"ab", [b"ab"], [5], ["a", None]])
def test_texts_that_are_none(texts: object) -> None:
    # In a process of its own: beartype would be faster than the error.
    code = f"import inlayer\ntry: inlayer.walk({texts!r})\nexcept inlayer.InlayerError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "str" in done.stdout
