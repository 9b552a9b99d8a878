"""`make families`: every causal and masked model type in transformers, and some others, compared with ours bit by bit.

For each type, a tiny model with random weights is built (tiny.py), saved, and opened by both libraries. The input of
the first block, per-layer embeddings and the rotary tables are compared in float32 and bfloat16, and the logits of
random hidden states within a tolerance. The outcome is one of
- equal: every value has the same bits
- refused: inlayer does not support the type, and says why
- differs: inlayer opens it, and its values differ. This is a bug
- not built: transformers cannot build a tiny model here
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import transformers
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPast

import inlayer
from inlayer.embeddings import Embeddings
from inlayer.positions import RotaryPositions
from tests.families.capture import Captured, accepts, capture
from tests.families.tiny import CAUSAL, MASKED, OTHERS, VOCAB, build, tiny_config

Job = tuple[str, str]  # model type, and "causal" or "masked"
JOBS: list[Job] = [*((name, "causal") for name in CAUSAL), *((name, "masked") for name in MASKED), *OTHERS.items()]
DTYPES = (torch.float32, torch.bfloat16)
TOKENS = 8


@dataclass(frozen=True)
class Outcome:
    """The result for one model type."""

    model_type: str
    kind: str
    outcome: str
    reason: str = ""
    family: str = ""
    hidden: int = 0  # compared values
    tables: int = 0
    logits: int = 0  # compared within a tolerance
    generic: str = ""  # the outcome of a causal model under an unknown model type


class DifferenceError(Exception):
    """A value of ours differs from theirs."""


def same_bits(ours: Tensor, theirs: Tensor) -> bool:
    """Equal shape, dtype and bits: -0.0 differs from 0.0."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    bits = {torch.float32: torch.int32, torch.bfloat16: torch.int16}[ours.dtype]
    return torch.equal(ours.contiguous().view(bits), theirs.contiguous().view(bits))


def inputs(model: nn.Module, layer: Embeddings, padding: int) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Plain ids, ids padded on each side, vectors, and explicit positions, as far as the model accepts them."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(4, VOCAB - 10, (3, TOKENS), generator=generator)
    yield "ids", {"input_ids": ids}
    for side, where in (("right", slice(5, None)), ("left", slice(None, 3))):
        padded, mask = ids.clone(), torch.ones_like(ids)
        padded[1:, where], mask[1:, where] = padding, 0
        yield f"padded on the {side}", {"input_ids": padded, "attention_mask": mask}
    if accepts(model, "inputs_embeds"):
        width = layer.token_embedding.embedding_dim
        vectors = torch.randn(3, TOKENS, width, generator=generator).to(layer.dtype)
        recover_ids = layer.per_layer_embedding is not None and layer.per_layer_embedding.recover_ids
        if recover_ids or any(spec.layer is not None for spec in layer.ngrams):  # it finds only rows of its table
            vectors = model.get_input_embeddings()(ids).detach()
        yield "inputs_embeds", {"inputs_embeds": vectors}
    if accepts(model, "position_ids") and layer.position_embedding is not None:
        yield "position_ids", {"input_ids": ids, "position_ids": torch.randint(0, 40, ids.shape, generator=generator)}


def compare(model: nn.Module, layer: Embeddings, padding: int) -> tuple[int, int]:
    """The number of hidden values and of table values that were compared; raises at the first difference."""
    hidden = tables = 0
    for name, given in inputs(model, layer, padding):
        seen = capture(model, **given, **decoder_inputs(model, 2))
        ours = layer(**given)
        theirs = like(seen, ours)
        if not same_bits(ours, theirs):
            raise DifferenceError(f"{name}: {difference(ours, theirs)}")
        if name == "ids" and same_bits(layer(given["input_ids"].flip(1)), theirs):
            raise DifferenceError("control: other ids give the same values")
        hidden += ours.numel() + compare_per_layer(name, seen.per_layer, layer, given)
        hidden += compare_values(name, seen.values, layer, given)
        if bool(seen.tables) != isinstance(layer.position_embedding, RotaryPositions):
            raise DifferenceError(f"{name}: {len(seen.tables)} rotary tables, ours {layer.position_embedding}")
        tables += compare_ngrams(name, seen.ngrams, layer, given)
        for table in seen.tables:
            pairs = zip(layer.rotary(table.position_ids, table.layer_type), cos_sin(table.output), strict=True)
            for mine, other in pairs:
                if not same_bits(mine, other):
                    raise DifferenceError(f"{name}: cos or sin {table.layer_type or ''}: {difference(mine, other)}")
                tables += mine.numel()
    return hidden, tables


def decoder_inputs(model: nn.Module, tokens: int) -> dict[str, Tensor]:
    """What the decoder of an encoder-decoder model reads; empty for others."""
    given = {"decoder_input_ids": torch.ones(3, tokens, dtype=torch.int64)}
    return given if accepts(model, "decoder_input_ids") else {}


def compare_head(model: Any, opened: inlayer.Model) -> int:
    """The number of logits that were compared: of random hidden states that take the place of the whole decoder.

    Masked-language heads transform them first: then what the last projection gets is compared.
    """
    projection = model.get_output_embeddings()
    if projection is None:
        return 0
    hidden = torch.randn(3, 5, opened.spec.n_embd, generator=torch.Generator().manual_seed(6))
    seen: list[Tensor] = []
    handle = projection.register_forward_pre_hook(lambda _, given: seen.append(given[0]))

    def forward(*_: Any, **__: Any) -> AnyOutput:
        return AnyOutput(last_hidden_state=hidden)

    name = next(name for name in (model.base_model_prefix, "model", "decoder") if hasattr(model, name))
    inner = getattr(model, name)
    if type(inner).__name__.endswith("DecoderWrapper"):  # the causal models of encoder-decoders do not call it
        inner = inner.decoder
    with torch.no_grad(), mock.patch.object(inner, "forward", forward):
        theirs = model(input_ids=torch.ones(3, 5, dtype=torch.int64), **decoder_inputs(model, 5)).logits
    handle.remove()
    ours = opened.head(hidden if is_multiple(seen[-1], hidden) else seen[-1])
    if ours.shape != theirs.shape or not torch.allclose(ours, theirs, rtol=1e-5, atol=1e-4):
        raise DifferenceError(f"logits: {difference(ours, theirs)}")
    return theirs.numel()


def is_multiple(one: Tensor, other: Tensor) -> bool:
    """Return whether one tensor is the other one times a number."""
    return one.shape == other.shape and torch.allclose(one * other.flatten()[0], other * one.flatten()[0], atol=1e-4)


class AnyOutput(BaseModelOutputWithPast):
    """The output of any decoder; what it lacks is None."""

    def __getattr__(self, name: str) -> None:
        return None


def compare_per_layer(name: str, theirs: Tensor | None, layer: Embeddings, given: dict[str, Tensor]) -> int:
    """The number of compared values of per-layer embeddings."""
    if (theirs is None) != (layer.per_layer_embedding is None):
        raise DifferenceError(f"{name}: one of the two has per-layer embeddings")
    if theirs is None:
        return 0
    ours = layer.per_layer(given.get("input_ids"), given.get("inputs_embeds"))
    if not same_bits(ours, theirs):
        raise DifferenceError(f"{name}: per layer: {difference(ours, theirs)}")
    return ours.numel()


def compare_values(name: str, found: dict[int, Tensor], layer: Embeddings, given: dict[str, Tensor]) -> int:
    """The number of compared values of value embeddings."""
    if set(found) != set(layer.value_layers):
        raise DifferenceError(f"{name}: value embeddings in blocks {set(found)}, ours {layer.value_layers}")
    for number, theirs in found.items():
        if not same_bits(layer.value_embeddings(given["input_ids"]), theirs):
            raise DifferenceError(f"{name}: value embeddings of block {number}")
    return sum(theirs.numel() for theirs in found.values())


def compare_ngrams(name: str, found: dict[int, Tensor], layer: Embeddings, given: dict[str, Tensor]) -> int:
    """The number of compared values of n-gram memories that decoder layers read."""
    if set(found) != {spec.layer for spec in layer.ngrams if spec.layer is not None}:
        raise DifferenceError(f"{name}: n-gram memories in layers {set(found)}")
    for number, theirs in found.items():
        ids = given["input_ids"] if "input_ids" in given else layer.ids_of(given["inputs_embeds"])
        ours = layer.ngram(ids, layer=number, attention_mask=given.get("attention_mask")).flatten(-2)
        if not same_bits(ours, theirs):
            raise DifferenceError(f"{name}: n-grams of layer {number}: {difference(ours, theirs)}")
    return sum(theirs.numel() for theirs in found.values())


def like(seen: Captured, ours: Tensor) -> Tensor:
    """Their hidden states with the axes of ours."""
    theirs = seen.hidden
    assert theirs is not None
    if theirs.dim() == 4 and theirs.shape[1:] == ours.shape:  # AltUp: the first stream, others are projections of it
        return theirs[0]
    if theirs.dim() == 4 and torch.equal(theirs, theirs[:, :, :1].expand_as(theirs)):  # identical streams
        return theirs[:, :, 0]
    if theirs.dim() == 3 and theirs.shape[2] > ours.shape[2]:  # identical streams, side by side
        streams = theirs.unflatten(2, (-1, ours.shape[2]))
        return streams[:, :, 0] if torch.equal(streams, streams[:, :, :1].expand_as(streams)) else theirs
    if theirs.shape[:2] == ours.shape[1::-1]:  # XLNet has the batch second
        return theirs.transpose(0, 1)
    return theirs


def cos_sin(output: Any) -> tuple[Tensor, Tensor]:
    """The tables of a rotary module; complex ones are cos + i sin."""
    return output if isinstance(output, tuple) else (output.real, output.imag)


def difference(ours: Tensor, theirs: Tensor) -> str:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{tuple(ours.shape)} {ours.dtype}, theirs {tuple(theirs.shape)} {theirs.dtype}"
    return f"up to {(ours.double() - theirs.double()).abs().max():.3g}"


def examine(job: Job, **settings: Any) -> Outcome:
    """Build, save, open and compare one model type, with these settings in its config."""
    model_type, kind = job
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        try:
            saved = save_tiny(model_type, kind, folder, **settings).eval()
            references = [saved, open_reference(type(saved), folder, DTYPES[1])]
        except Exception as error:
            return Outcome(model_type, kind, "not built", _short(error))
        family, hidden, tables, logits = "", 0, 0, 0
        try:
            for dtype, theirs in zip(DTYPES, references, strict=True):
                opened = inlayer.load(folder, dtype=dtype)
                layer = opened.embeddings
                family = opened.spec.family if opened.spec else ""
                padding = layer.padding_idx if layer.padding_idx is not None else 1
                one, two = compare(theirs, layer, padding)
                hidden, tables = hidden + one, tables + two
                logits += compare_head(theirs, opened) if dtype == torch.float32 else 0
        except inlayer.InlayerError as error:
            return Outcome(model_type, kind, "refused", str(error).replace(folder, "the model"))
        except Exception as error:  # a difference, or a comparison that does not run
            return Outcome(model_type, kind, "differs", _short(error), family)
        generic = open_renamed(folder, references[0]) if kind == "causal" else ""
    return Outcome(model_type, kind, "equal", "", family, hidden, tables, logits, generic)


def open_renamed(folder: str, reference: nn.Module) -> str:
    """The outcome for the same files under a model type that inlayer does not know."""
    path = Path(folder) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "brand_new"}))
    try:
        opened = inlayer.load(folder, dtype=DTYPES[0])
        compare(reference, opened.embeddings, opened.embeddings.padding_idx or 1)
        compare_head(reference, opened)
    except inlayer.InlayerError:
        return "refused"
    except Exception:  # a difference, or a comparison that does not run
        return "differs"
    return "equal"


def save_tiny(model_type: str, kind: str, folder: str, **settings: Any) -> Any:
    """A tiny model with random weights, which transformers writes into the folder."""
    model = build(kind, tiny_config(model_type, kind, **settings))
    with torch.no_grad():
        learned = [buffer for name, buffer in model.named_buffers() if name.endswith("rotary_emb.alpha")]
        for parameter in (*model.parameters(), *learned):
            parameter.normal_()
    model.save_pretrained(folder)
    return model


def open_reference(maker: Any, folder: str, dtype: torch.dtype) -> nn.Module:
    """The model that transformers loads from a folder."""
    return maker.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def survey(jobs: list[Job], processes: int = 2) -> Iterator[Outcome]:
    """Examine every job, in parallel."""
    with ProcessPoolExecutor(processes, mp_context=get_context("fork")) as pool:
        yield from pool.map(examine, jobs)
