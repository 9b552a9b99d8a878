"""docs/families.md is up to date; the values it counts are compared in test_parity.py."""

from __future__ import annotations

from tests.families.document import HEADER, PAGE, traits
from tests.families.references import CASES


def test_page_is_up_to_date() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")][2:]
    written = ["|".join(row.split("|")[:5]) + "|" for row in rows]
    assert written == [traits(case) for case in CASES], "run `make docs`"


def test_snippet_for_an_unsupported_family_runs() -> None:
    code = HEADER.split("```python\n")[1].split("```")[0]
    names: dict[str, object] = {}
    exec(code, names)
    assert names["layer"].position_embedding.head_dim == 16
