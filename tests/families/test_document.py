"""docs/families.md and outcomes.json come from the same survey, and the page shows the current traits."""

from __future__ import annotations

from tests.families.document import HEADER, PAGE, explain_count, summarize, traits
from tests.families.survey import Outcome
from tests.families.test_survey import EQUAL, RECORDED


def test_page_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.partition("## Equal")[2].partition("## Not")[0].splitlines()[6:]]
    written = {(row[0].removeprefix("| "), row[1]): " | ".join(row[2:4]) for row in rows if len(row) > 4}
    assert written == {job: traits(RECORDED[job]["family"]) for job in EQUAL}, "run `make families`"


def test_page_explains_the_number_of_families() -> None:
    outcomes = [Outcome(**one) for one in RECORDED.values()]
    assert f"{summarize(outcomes)}\n\n{explain_count(outcomes)}\n" in PAGE.read_text(encoding="utf-8")


def test_snippet_for_an_unsupported_family_runs() -> None:
    code = HEADER.split("```python\n")[1].split("```")[0]
    names: dict[str, object] = {}
    exec(code, names)
    assert names["layer"].position_embedding.head_dim == 16
