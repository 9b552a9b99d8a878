"""Colors of tokens: distinct from each other and from every legend, also without red-green vision, in both themes."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

pytestmark = pytest.mark.slow

TEXT = "text=The+king+left+London+with+seven+friends+on&model=default&step=1"
PIXELS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const pixel = (color) => { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3); };
  const named = (name) => pixel(getComputedStyle(document.documentElement).getPropertyValue(name));
  return {
    tokens: [...document.querySelectorAll(".chip")].map((chip) => pixel(getComputedStyle(chip).borderLeftColor)),
    legends: ["--hot", "--cold", "--accent", ...[0, 1, 2, 3, 4, 5].map((kind) => `--kind-${kind}`)].map(named),
    surface: [named("--surface")],
  };
}"""
# Machado et al. 2009, complete deficiency; linear RGB.
VISION = {
    "full": np.eye(3),
    "without green": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "without red": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
}
TO_LMS = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
TO_OKLAB = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]


def linear(pixels) -> np.ndarray:
    share = np.array(pixels) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def oklab(colors: np.ndarray, vision: str) -> np.ndarray:
    seen = np.clip(colors @ np.array(VISION[vision]).T, 0, 1)
    return np.cbrt(seen @ np.array(TO_LMS).T) @ np.array(TO_OKLAB).T


def smallest(pairs) -> float:
    return min(float(np.linalg.norm(one - other)) for one, other in pairs)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_token_colors_differ_from_each_other_and_from_the_legends(scheme, open_page):
    page = open_page(TEXT, color_scheme=scheme).page
    page.wait_for_selector(".chip")
    colors = {name: linear(pixels) for name, pixels in page.evaluate(PIXELS).items()}
    assert len(colors["tokens"]) == 8  # later tokens repeat the hues
    for vision, least in (("full", 0.07), ("without green", 0.03), ("without red", 0.03)):
        tokens, legends = oklab(colors["tokens"], vision), oklab(colors["legends"], vision)
        assert smallest(combinations(tokens, 2)) > least, vision
        assert smallest(product(tokens, legends)) > least, vision
        assert smallest(product(legends[:1], legends)) == 0  # control
    light = colors["tokens"] @ [0.2126, 0.7152, 0.0722] + 0.05
    surface = colors["surface"][0] @ [0.2126, 0.7152, 0.0722] + 0.05
    assert np.maximum(light / surface, surface / light).min() > 3
