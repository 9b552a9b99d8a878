"""Capture what a transformers model feeds into its blocks: hidden states, rotary tables and per-layer vectors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

OTHER_TOWERS = re.compile(
    r"(^|\.)(vision\w*|visual\w*|audio\w*|image\w*|vqmodel|patcher|global_transformer|local_decoder)(\.|$)"
)
SMALL_MODULES = (nn.Embedding, nn.Linear, nn.LayerNorm, nn.Dropout, nn.Conv1d)


@dataclass(frozen=True)
class Tables:
    """One call of a rotary module: the positions and the layer type it was given, and what it returned."""

    module: str
    position_ids: Tensor | None
    layer_type: str | None
    output: Any


@dataclass
class Captured:
    """The tensor that entered the first block, the name of that block, every rotary table, and per-layer vectors."""

    hidden: Tensor | None = None
    block: str = ""
    tables: list[Tables] = field(default_factory=list)
    ngrams: dict[int, Tensor] = field(default_factory=dict)  # per layer, the rows of its n-gram memory
    per_layer: Tensor | None = None  # the vectors of every block
    values: dict[int, Tensor] = field(default_factory=dict)  # per block, its value embeddings
    error: Exception | None = None  # raised by the model after its first block was entered


def accepts(model: nn.Module, name: str) -> bool:
    """Return whether a model's forward method has an argument."""
    return name in inspect.signature(model.forward).parameters


def capture(model: nn.Module, **inputs: Any) -> Captured:
    """Run a model. What happens after its first block is entered may fail: only the input layer is of interest."""
    seen = Captured()

    def at_block(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            names = inspect.signature(module.forward).parameters
            values = (dict(zip(names, args, strict=False)) | kwargs).get("value_embeds")
            if values is not None:
                seen.values[int(name.rpartition(".")[2])] = values.detach().clone()
            tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
            named = kwargs.get("hidden_states")
            hidden = named if named is not None else next(iter(tensors), None)
            if seen.hidden is None and hidden is not None and hidden.is_floating_point():
                seen.hidden, seen.block = hidden.detach().clone(), name

        return hook

    def at_rotary(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
            given = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
            seen.tables.append(Tables(name, given.get("position_ids"), given.get("layer_type"), out))

        return hook

    def at_embeddings(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, Tensor):
            embedded.append(output.detach().clone())

    def at_ngrams(layer: int) -> Any:
        def hook(_module: nn.Module, _args: tuple[Any, ...], output: Tensor) -> None:
            seen.ngrams[layer] = output.detach().clone()

        return hook

    hooks, embedded = [], list[Tensor]()
    for name, module in model.named_modules():
        if OTHER_TOWERS.search(name):
            continue
        if isinstance(module, nn.ModuleList):
            hooks += [
                child.register_forward_pre_hook(at_block(f"{name}.{number}"), with_kwargs=True)
                for number, child in enumerate(module)
                if not isinstance(child, (*SMALL_MODULES, nn.ModuleList)) and child is not None
            ]
        elif type(module).__name__.endswith("Embeddings"):
            hooks.append(module.register_forward_hook(at_embeddings))
        elif type(module).__name__.endswith("NGramEmbedding"):
            hooks.append(module.register_forward_hook(at_ngrams(int(re.findall(r"\.(\d+)\.", name)[0]))))
        elif type(module).__name__.endswith("RotaryEmbedding"):
            hooks.append(module.register_forward_hook(at_rotary(name), with_kwargs=True))
    try:
        with torch.no_grad(), recorded_per_layer(model, seen):
            model(**{name: value.clone() for name, value in inputs.items()})  # some models write into their inputs
    except Exception as error:
        if seen.hidden is None:
            raise
        seen.error = error
    finally:
        for hook in hooks:
            hook.remove()
    if seen.hidden is None and embedded:  # SqueezeBERT calls its blocks in a way that passes hooks by
        seen.hidden, seen.block = embedded[0], "embeddings"
    if seen.hidden is None:
        raise LookupError("no block was entered")
    seen.tables += precomputed_tables(model, inputs)
    return seen


@contextmanager
def recorded_per_layer(model: nn.Module, seen: Captured) -> Iterator[None]:
    """Record what Gemma's `project_per_layer_inputs`, which is a method and has no hook, returns."""
    owners = [module for module in model.modules() if hasattr(module, "project_per_layer_inputs")]
    hooks = [
        module.register_forward_hook(lambda _, __, output: setattr(seen, "per_layer", output))
        for module in model.modules()
        if type(module).__name__.endswith("TextPLE")  # EmbeddingGemma-2
    ]
    for module in owners:
        original: Any = module.project_per_layer_inputs

        def record(*args: Any, project: Any = original, **kwargs: Any) -> Tensor:
            seen.per_layer = project(*args, **kwargs)
            return seen.per_layer

        module.project_per_layer_inputs = record
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for module in owners:
            del module.project_per_layer_inputs


def precomputed_tables(model: nn.Module, inputs: dict[str, Any]) -> list[Tables]:
    """GPT-J and CodeGen keep sin and cos of all positions in each attention module."""
    for name, module in model.named_modules():
        table = getattr(module, "embed_positions", None)
        if type(module).__name__.endswith("Attention") and isinstance(table, Tensor):
            given = next(value for value in inputs.values())
            position_ids = inputs.get("position_ids", torch.arange(given.shape[1])[None])
            sin, cos = table[position_ids].chunk(2, dim=-1)
            dtype = next(model.parameters()).dtype  # attention casts them
            return [Tables(name, position_ids, None, (cos.to(dtype), sin.to(dtype)))]
    return []
