"""Rotary positions: rotate channel pairs of queries and keys by an angle that grows with position.

text -> ids -> rows -> [positions] -> hidden states -> head
- RoPE adds nothing to the rows: the layer prepares cos and sin, and attention applies them
- pairing (which channels form a pair): "half" (i with i + K/2; Llama) or "interleaved" (2i with 2i + 1; GPT-J, Cohere)
- layout of cos and sin: "half" (all angles, then all of them again), "interleaved" (each angle twice in a row),
  "single" (each angle once; GPT-OSS), or "complex" (once, as the parts of a complex number; Llama-4). The layout
  usually matches the pairing, but GLM pairs interleaved channels and lays out its tables in halves
- M-RoPE (Qwen-VL): positions have three axes, and each channel pair follows one of them
- angles are always float32; cos and sin are cast to the model's dtype at the end. Tables are not cached, so they
  cannot become stale
- see also: RoPE scaling for longer texts, such as YaRN (positions/rope_scaling.py)
Tested against a plain loop and against transformers in tests/positions/test_rotary.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inlayer.checks import is_integer
from inlayer.errors import InputError, ShapeError
from inlayer.families.spec import Layout, Pairing, RopeParameters
from inlayer.positions.rope_scaling import scaled_frequencies
from inlayer.tensors import check_dense, check_ids, is_jit_tracing

MAX_HEAD_DIM = 2**20  # a larger value means a damaged config, and its frequencies would exhaust memory


class RotaryPositions(nn.Module):
    """Computes cos and sin for given positions, in float32 at every call, so `.to(bfloat16)` cannot round the angles.

    Args:
        head_dim: Channels per head.
        rope_parameters: One `RopeParameters`, or one per layer type for a model with several bases (Gemma-3).
        pairing: "half" (channel i with i + K/2) or "interleaved" (2i with 2i + 1).
        layout: How cos and sin are laid out: "half", "interleaved", "single", or "complex"; by default, same as the
            pairing.
        keep_float32: Keep the tables float32 regardless of the model's dtype (OLMo).
        layer_types: The type of every layer, or None for a layer without rotary positions.
        learned_frequencies: Add the buffer `alpha`, the logarithm of a multiplier for each frequency
            (Mistral-Large-4). It stays float32, as in the original.
        reverse_rotation: `rotate` rotates in the opposite direction (nanochat).
        rotate_in_float32: `rotate` rounds only once, at the end (Cohere, ModernBERT).

    Raises:
        InlayerError: If a size, name, or parameter is invalid, or they are inconsistent.

    Example:
        >>> from inlayer.positions import RotaryPositions
        >>> rotary = RotaryPositions(head_dim=4)
        >>> cos, sin = rotary(torch.tensor([[0, 1]]))
        >>> cos
        tensor([[[1.0000, 1.0000, 1.0000, 1.0000],
                 [0.5403, 0.9999, 0.5403, 0.9999]]])
    """

    def __init__(
        self,
        head_dim: int,
        rope_parameters: RopeParameters | Mapping[str, RopeParameters] | None = None,
        *,
        pairing: Pairing = "half",
        layout: Layout | None = None,
        keep_float32: bool = False,
        layer_types: tuple[str | None, ...] | None = None,
        learned_frequencies: bool = False,
        reverse_rotation: bool = False,
        rotate_in_float32: bool = False,
    ) -> None:
        super().__init__()
        if not is_integer(head_dim) or not 2 <= head_dim <= MAX_HEAD_DIM:
            raise InputError(f"head_dim is {head_dim!r}; it must be an integer in 2..{MAX_HEAD_DIM:,}")
        _check_names(pairing, layout or pairing)
        self.head_dim, self.keep_float32, self.layer_types = int(head_dim), keep_float32, layer_types
        self.alpha = nn.Buffer(torch.zeros(head_dim // 2)) if learned_frequencies else None
        self.reverse_rotation, self.rotate_in_float32 = reverse_rotation, rotate_in_float32
        self.rope_parameters: RopeParameters | dict[str, RopeParameters]
        self.rope_parameters = (
            dict(rope_parameters) if isinstance(rope_parameters, Mapping) else rope_parameters or RopeParameters()
        )
        self.pairing: Pairing = pairing
        self.layout: Layout = layout or pairing
        if self.rope_parameters == {}:
            raise InputError("rotary positions that differ by layer need the parameters of at least one layer type")
        by_type = self.rope_parameters if isinstance(self.rope_parameters, dict) else {None: self.rope_parameters}
        for layer_type, settings in by_type.items():
            rotated = self.rotated_dim(settings)
            if rotated < 2 or rotated % 2:
                raise InputError(
                    f"a head of {head_dim} channels with a rotated fraction of "
                    f"{settings.partial_rotary_factor:g} has {rotated} rotated channels; channels are rotated in "
                    "pairs, so it must be an even number of at least 2"
                )
            if settings.sections and not settings.sections_interleaved and sum(settings.sections) != rotated // 2:
                raise InputError(
                    f"mrope_section {list(settings.sections)} has {sum(settings.sections)} channel pairs, "
                    f"but {rotated // 2} are rotated"
                )
            # Computed once here, so that inconsistent settings fail here, not on the first forward pass.
            frequencies, factor = self.inverse_frequencies(1, layer_type)
            if not (math.isfinite(factor) and bool(frequencies.isfinite().all())):
                raise InputError(f"{settings} produces non-finite rotary frequencies or a non-finite cos/sin factor")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryPositions:
        before = self.alpha
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if before is not None and self.alpha is not None and self.alpha.dtype != before.dtype:
            self.alpha = nn.Buffer(before.to(self.alpha.device))
        return self

    def rotated_dim(self, settings: RopeParameters) -> int:
        """Return the number of channels of a head that are rotated; the others are unchanged.

        Args:
            settings: The parameters of a layer type.

        Returns:
            The number of rotated channels.

        Example:
            >>> from inlayer.positions import RopeParameters, RotaryPositions
            >>> RotaryPositions(head_dim=64).rotated_dim(RopeParameters(partial_rotary_factor=0.25))
            16
        """
        return int((settings.head_dim or self.head_dim) * settings.partial_rotary_factor)

    def layer_rotary_type(self, layer: int) -> tuple[bool, str | None]:
        """Return whether a layer has rotary positions, and its type where parameters differ by type.

        Args:
            layer: Index of the layer.

        Returns:
            Whether its queries and keys are rotated, and the name of its type or None.

        Raises:
            InputError: If there is no such layer.

        Example:
            >>> from inlayer.positions import RopeParameters, RotaryPositions
            >>> by_type = {"full_attention": RopeParameters(theta=1e6), "sliding_attention": RopeParameters()}
            >>> rotary = RotaryPositions(4, by_type, layer_types=("sliding_attention", "full_attention", None))
            >>> rotary.layer_rotary_type(1), rotary.layer_rotary_type(2)[0]
            ((True, 'full_attention'), False)
        """
        if self.layer_types is None and isinstance(self.rope_parameters, RopeParameters):
            return True, None
        layers = self.layer_types or ()
        if not 0 <= layer < len(layers):
            known = f"has layers 0..{len(layers) - 1}" if layers else "has no list of layer types"
            raise InputError(f"layer is {layer}, but the config {known}; pass layer_type instead")
        name = layers[layer]
        return name is not None, name if isinstance(self.rope_parameters, dict) else None

    def _parameters_for(self, layer_type: str | None) -> RopeParameters:
        if isinstance(self.rope_parameters, RopeParameters):
            return self.rope_parameters  # all layers share them
        if layer_type in self.rope_parameters:
            return self.rope_parameters[layer_type]
        known = ", ".join(self.rope_parameters)
        raise InputError(f"layer_type is {layer_type!r}, but these positions differ by layer; choose one of {known}")

    def inverse_frequencies(
        self, length: int | Tensor = 1, layer_type: str | None = None
    ) -> tuple[Float[Tensor, " pairs"], float]:
        """Return radians per token for every pair, and the cos/sin factor, for a text of `length` tokens.

        Args:
            length: Number of tokens in the text; some kinds of RoPE scaling depend on it.
            layer_type: The type of the layer, where parameters differ by type.

        Returns:
            Inverse frequencies (pairs,) float32 on the CPU, and the factor.

        Raises:
            InlayerError: If there is no such layer type, or the scaling does not match the number of pairs.

        Example:
            >>> from inlayer.positions import RotaryPositions
            >>> RotaryPositions(head_dim=4).inverse_frequencies()
            (tensor([1.0000, 0.0100]), 1.0)
        """
        settings = self._parameters_for(layer_type)
        length = length.cpu() if isinstance(length, Tensor) else torch.full((), length, device="cpu")
        frequencies, factor = scaled_frequencies(settings.scaling, self.rotated_dim(settings), settings.theta, length)
        if self.alpha is not None and not self.alpha.is_meta:
            frequencies = frequencies * self.alpha.cpu().float().exp()
        return frequencies, factor

    @torch.no_grad()
    def forward(
        self, position_ids: Tensor, dtype: torch.dtype = torch.float32, layer_type: str | None = None
    ) -> tuple[Float[Tensor, "... R"], Float[Tensor, "... R"]]:
        """Return cos and sin of shape position_ids.shape + (rotated channels,), in `dtype`.

        Args:
            position_ids: Positions of any shape, usually (B, T); (3, B, T) with M-RoPE.
            dtype: The dtype of the result.
            layer_type: The type of the layer, where parameters differ by type.

        Returns:
            cos and sin.

        Raises:
            DtypeError: If the positions are not integers.
            ShapeError: If M-RoPE positions do not have one axis per section.
            InputError: If there is no such layer type.

        Example:
            >>> from inlayer.positions import RotaryPositions
            >>> cos, sin = RotaryPositions(head_dim=4)(torch.arange(3)[None], torch.bfloat16)
            >>> cos.shape, sin.dtype
            (torch.Size([1, 3, 4]), torch.bfloat16)
        """
        position_ids, settings = check_ids(position_ids, "position_ids"), self._parameters_for(layer_type)
        if settings.scaling is None or position_ids.numel() == 0 or position_ids.is_meta:
            length: int | Tensor = 1
        else:
            length = position_ids.max().long().cpu() + 1  # long first: 127 + 1 is -128 in int8
        frequencies, factor = self.inverse_frequencies(length, layer_type)
        frequencies = frequencies.to(position_ids.device)
        sections = settings.sections
        if sections is not None and position_ids.dim() == 3:
            if not is_jit_tracing() and len(position_ids) != len(sections):
                names = "time, height, and width" if len(sections) == 3 else "rows and columns"
                raise ShapeError(
                    f"position_ids has shape {tuple(position_ids.shape)}; expected ({len(sections)}, batch, tokens): "
                    f"one axis each for {names}"
                )
            axes = axis_of_pairs(sections, frequencies.numel(), settings.sections_interleaved)
            angles = position_ids.movedim(0, -1)[..., axes].float() * frequencies
        else:
            angles = position_ids[..., None].float() * frequencies
        if self.layout == "half":
            angles = torch.cat((angles, angles), dim=-1)
        elif self.layout == "interleaved":
            angles = angles.repeat_interleave(2, dim=-1)
        dtype = torch.float32 if self.keep_float32 else dtype
        if self.layout == "complex":  # torch.polar is not bit-identical to cos and sin
            unit = torch.polar(torch.ones_like(angles), angles) * factor
            return unit.real.to(dtype), unit.imag.to(dtype)
        return (angles.cos() * factor).to(dtype), (angles.sin() * factor).to(dtype)

    if TYPE_CHECKING:
        __call__ = forward

    def rotate(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *, head_axis: int = 1) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys with the pairing, layout, direction, and precision of these positions.

        Args:
            q: Queries (B, H, T, K), or (B, T, H, K) with head_axis=2.
            k: Keys in the same layout; they may have fewer heads.
            cos: The cos returned by this module for these positions.
            sin: Same shape as cos.
            head_axis: 1 for (B, H, T, K), 2 for (B, T, H, K).

        Returns:
            The rotated queries and keys, each in its own dtype.

        Raises:
            DtypeError: If an argument is not a dense tensor.
            ShapeError: If the shapes do not match.

        Example:
            >>> from inlayer.positions import RotaryPositions
            >>> rotary, q, k = RotaryPositions(head_dim=4), torch.randn(1, 2, 3, 4), torch.randn(1, 1, 3, 4)
            >>> [x.shape for x in rotary.rotate(q, k, *rotary(torch.arange(3)[None]))]
            [torch.Size([1, 2, 3, 4]), torch.Size([1, 1, 3, 4])]
        """
        if self.rotate_in_float32:
            cos, sin = cos.float(), sin.float()
        sin = -sin if self.reverse_rotation else sin
        return apply_rotary(q, k, cos, sin, pairing=self.pairing, layout=self.layout, head_axis=head_axis)

    def extra_repr(self) -> str:
        """Return the settings, for print(model)."""
        return f"{self.head_dim}, {self.rope_parameters}, pairing={self.pairing}, layout={self.layout}"


def axis_of_pairs(sections: tuple[int, ...], pairs: int, interleaved: bool) -> list[int]:
    """Return the position axis that each channel pair follows.

    Example:
        >>> axis_of_pairs((2, 1, 1), 4, interleaved=False), axis_of_pairs((2, 1, 1), 4, interleaved=True)
        ([0, 0, 1, 2], [0, 1, 2, 0])
    """
    if not interleaved:
        return [axis for axis, count in enumerate(sections) for _ in range(count)]
    # pairs cycle through the axes until an axis has used up its section; the rest follow the first axis
    axes = [pair % len(sections) for pair in range(pairs)]
    return [axis if axis and pair < len(sections) * sections[axis] else 0 for pair, axis in enumerate(axes)]


def apply_rotary(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    pairing: Pairing = "half",
    layout: Layout | None = None,
    head_axis: int = 1,
) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys by the angles of their positions.

    Args:
        q: Queries (B, H, T, K), or (B, T, H, K) with head_axis=2.
        k: Keys in the same layout; they may have fewer heads.
        cos: (B, T, R) or (T, R), as `Embeddings.rotary` returns it. Channels beyond the rotated ones are unchanged.
        sin: Same shape as cos.
        pairing: "half" (channel i with i + K/2) or "interleaved" (2i with 2i + 1).
        layout: How cos and sin are laid out: "half", "interleaved", or "single"; by default, same as the pairing.
        head_axis: 1 for (B, H, T, K), 2 for (B, T, H, K).

    Returns:
        The rotated queries and keys, each in its own dtype.

    Raises:
        DtypeError: If an argument is not a dense tensor.
        ShapeError: If the shapes do not match.
        InputError: If pairing or layout is unknown.

    Example:
        >>> q = torch.tensor([[[[1.0, 0.0]]]])
        >>> apply_rotary(q, q, torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 1.0]]))[0]  # by 90 degrees
        tensor([[[[0., 1.]]]])
    """
    for name, x in (("q", q), ("k", k), ("cos", cos), ("sin", sin)):
        check_dense(x, name)
    if q.dim() != 4 or k.dim() != 4 or head_axis not in (1, 2):
        raise ShapeError(
            f"q {tuple(q.shape)} and k {tuple(k.shape)} must have 4 axes, and head_axis {head_axis} must be 1 or 2"
        )
    _check_names(pairing, layout or pairing)
    # Counted from the end, the head axis has the same index for (B, T, R) and (T, R).
    cos, sin = (deduplicate_angles(table, layout or pairing).unsqueeze(head_axis - 4) for table in (cos, sin))
    return _rotate(q, cos, sin, pairing, "q"), _rotate(k, cos, sin, pairing, "k")


def _check_names(pairing: str, layout: str) -> None:
    for name, value, known in (("pairing", pairing, get_args(Pairing)), ("layout", layout, get_args(Layout))):
        if value not in known:
            raise InputError(f"{name} is {value!r}; it must be one of {', '.join(known)}")


def deduplicate_angles(table: Tensor, layout: str) -> Tensor:
    """Return the cos or sin table with each angle once, for any layout."""
    if layout in ("single", "complex"):
        return table
    return table[..., : table.shape[-1] // 2] if layout == "half" else table[..., 0::2]


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, pairing: str, name: str) -> Tensor:
    rotated_dim, tracing = 2 * cos.shape[-1], is_jit_tracing()  # sizes cannot be compared while tracing
    if not tracing and rotated_dim > x.shape[-1]:
        width = x.shape[-1]
        advice = f"pass head_dim={width} to Embeddings or RotaryPositions"
        raise ShapeError(f"{name} has heads of {width} channels, but cos and sin rotate {rotated_dim}; {advice}")
    fits = (ours in (1, theirs) for ours, theirs in zip(cos.shape[-2::-1], x.shape[-2::-1], strict=False))
    if not tracing and not all(fits):
        raise ShapeError(
            f"cos and sin, broadcast over heads, are {tuple(cos.shape)} and do not match {name} {tuple(x.shape)}; "
            "head_axis is 1 for (B, H, T, K) and 2 for (B, T, H, K)"
        )
    to_rotate, unchanged = x[..., :rotated_dim], x[..., rotated_dim:]
    if pairing == "half":
        first, second = to_rotate.chunk(2, dim=-1)
        rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    else:
        first, second = to_rotate[..., 0::2], to_rotate[..., 1::2]
        rotated = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)
    rotated = rotated.to(x.dtype)
    return torch.cat((rotated, unchanged), dim=-1) if tracing or unchanged.shape[-1] else rotated
