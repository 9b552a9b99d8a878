"""Notebooks: complete, valid, graded as in the terminal, and they run from top to bottom whether solved or not."""

from __future__ import annotations

import asyncio
import base64
import html
import io
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from inlayer.errors import InputError
from inlayer.learn.batch import task_cells
from inlayer.learn.content import LESSONS
from inlayer.learn.course import CONTENT, Lesson, open_course
from inlayer.learn.notebook import (
    answer,
    ask,
    file_name,
    load_ipython_extension,
    plain_printer,
    write_notebooks,
)
from inlayer.learn.progress_file import ProgressFile
from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, TheoryQuestion
from inlayer.render.markdown import to_notebook
from tests.learn.test_lessons import fences

SEED = 5
EACH_LESSON = pytest.mark.parametrize("name", LESSONS)


@pytest.fixture(autouse=True)
def _progress_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAYER_DATA", str(tmp_path / "data"))


def written(lesson: Lesson, folder: Path) -> dict[str, Any]:
    (path,) = write_notebooks(folder, [lesson], seed=SEED)
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read


def question_text(question: TheoryQuestion) -> str:
    shown = io.StringIO()
    plain_printer(shown).question(question)
    return shown.getvalue()


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def sources(book: dict[str, Any], kind: str) -> list[str]:
    return [source(cell) for cell in book["cells"] if cell["cell_type"] == kind]


# ---- written notebooks


@EACH_LESSON
def test_notebooks_are_valid(name: str, tmp_path: Path) -> None:
    book = written(open_course().lesson(name), tmp_path)
    nbformat.validate(nbformat.from_dict(book), relax_add_props=False)
    ids = [cell["id"] for cell in book["cells"]]
    assert len(set(ids)) == len(ids)
    assert book["metadata"]["kernelspec"]["name"] == "python3"
    assert sources(book, "code")[0] == "%load_ext inlayer.learn.notebook"


@EACH_LESSON
def test_a_notebook_contains_the_whole_lesson(name: str, tmp_path: Path) -> None:
    lesson = open_course().lesson(name)
    book = written(lesson, tmp_path)
    code, texts = sources(book, "code"), "\n\n".join(sources(book, "markdown"))
    lesson_code = [(fence.rstrip("\n"), shown) for _, fence, shown in fences(lesson.text, boxes=False)]
    stored = {source(cell): "".join(cell["outputs"][0]["text"]) for cell in book["cells"] if cell.get("outputs")}
    assert code[1 : 1 + len(lesson_code)] == [fence for fence, _ in lesson_code]
    assert all(stored[fence] == shown for fence, shown in lesson_code if shown)
    for heading in lesson.document.sections:
        assert f"\n## {heading}\n" in texts
    for task in lesson.tasks:
        assert f"%%task {task.id}\n{task.start.rstrip()}" in code
        assert f"### {task.title}" in texts
    assert texts.count("<details><summary>Hint") == texts.count("</details>") == 3 * len(lesson.tasks)
    for one in (*lesson.exercises, *lesson.questions):
        assert f'ask("{one.id}", seed={SEED})' in code
        assert f'answer("{one.id}", "")' in code
        assert stored[f'ask("{one.id}", seed={SEED})'] == question_text(one.ask(SEED))


@EACH_LESSON
def test_links_in_a_notebook_work_there(name: str, tmp_path: Path) -> None:
    lesson = open_course().lesson(name)
    texts = "\n\n".join(sources(written(lesson, tmp_path), "markdown"))
    targets = re.findall(r"\]\(([^)]*)\)", re.sub(r"^```.*?^```", "", texts, flags=re.DOTALL | re.MULTILINE))
    others = {file_name(other) for other in open_course().lessons}
    assert [target for target in targets if target not in others and not target.startswith("https://")] == []
    pictures = re.findall(r"!\[([^\]]*)\]\((pictures/[^)]*)\)", lesson.text)
    embedded = re.findall(r'<img alt="([^"]*)" src="data:image/svg\+xml;base64,([^"]*)">', texts)
    for (alt, path), (output, data) in zip(pictures, embedded[: len(pictures)], strict=True):
        assert html.unescape(output) == " ".join(alt.split())
        assert base64.b64decode(data) == (CONTENT / path).read_bytes()
    assert "```formula" not in texts


def split(text: str) -> list[Any]:
    return list(to_notebook(text, lambda _, words, address: f"{words} -> {address}", lambda _: None))


def test_a_lesson_is_split_at_its_python_fences_only() -> None:
    fenced = "```python\nx = 1\n\nprint(x)\n```\n\n```text\n1\n```\n"
    first, code, last = split(f"One\n\n```formula\n# no code\n```\n{fenced}Two\n\n```text\nalone\n```")
    assert (first.kind, first.text) == ("text", "One\n\n```text\n# no code\n```")
    assert (code.kind, code.text, code.output) == ("python", "x = 1\n\nprint(x)", "1\n")
    assert last.text == "Two\n\n```text\nalone\n```"
    (open_ended,) = split("```text\n```python in a line\nnever closed")
    assert open_ended.kind == "text"


def test_existing_notebooks_are_not_overwritten(tmp_path: Path) -> None:
    lessons = list(open_course().lessons[:2])
    (first,) = write_notebooks(tmp_path, lessons[:1])
    first.write_text("my answers", encoding="utf-8")
    with pytest.raises(InputError, match=r"01-text.ipynb: already exists and may contain your answers"):
        write_notebooks(tmp_path, lessons)
    assert [path.name for path in tmp_path.glob("*.ipynb")] == ["01-text.ipynb"]
    assert first.read_text(encoding="utf-8") == "my answers"
    assert len(write_notebooks(tmp_path, lessons, overwrite=True)) == 2
    assert first.read_text(encoding="utf-8") != "my answers"


def test_each_notebook_has_its_own_numbers(tmp_path: Path) -> None:
    lesson = [open_course().lesson("forward")]
    texts = [write_notebooks(tmp_path / str(n), lesson)[0].read_text(encoding="utf-8") for n in range(2)]
    assert texts[0] != texts[1]
    again = [write_notebooks(tmp_path / str(n), lesson, seed=3)[0].read_text(encoding="utf-8") for n in (3, 4)]
    assert again[0] == again[1]


# ---- functions that cells call


def right_answer(asked: NumberQuestion | ChoiceQuestion) -> str:
    if isinstance(asked, ChoiceQuestion):
        return next(chr(ord("a") + number) for number, option in enumerate(asked.options) if option.correct)
    return str(asked.answer)


def test_answers_are_graded_and_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    course = open_course()
    number = next(one for one in course.exercises.values() if isinstance(one.ask(SEED), NumberQuestion))
    free = next(one for one in course.exercises.values() if isinstance(one.ask(SEED), FreeTextQuestion))
    question = next(iter(course.questions.values()))

    def output_of(call: Any, *args: Any) -> str:
        call(*args)
        return capsys.readouterr().out

    assert output_of(answer, number.id, "1").startswith(f'Run ask("{number.id}") first')
    assert output_of(ask, number.id, SEED) == question_text(number.ask(SEED))
    assert output_of(answer, number.id, "") == "Write your answer between the quotes, and run this cell again.\n"
    assert "is not a" in output_of(answer, number.id, "many")
    assert not ProgressFile().read().records
    drawn = number.ask(SEED)
    assert isinstance(drawn, NumberQuestion)
    wrong = "(1, 1, 1, 1, 1)" if isinstance(drawn.answer, tuple) else "-1"
    assert output_of(answer, number.id, wrong).startswith("✗ Incorrect.")
    assert not ProgressFile().read().record("exercise", number.id).done
    assert output_of(answer, number.id, right_answer(drawn)).startswith("✓ Correct.\n")
    assert ProgressFile().read().record("exercise", number.id).done

    output_of(ask, free.id)
    model = free.ask(SEED)
    assert isinstance(model, FreeTextQuestion)
    output = output_of(answer, free.id, "because")
    assert " ".join(model.sample_answer.split())[:60] in " ".join(output.split())
    assert output.count("[ ]") == len(model.points)

    output_of(ask, question.id, SEED)
    choice = question.ask(SEED)
    output = output_of(answer, question.id, right_answer(choice))
    assert output.startswith("✓ Correct.")
    assert output.count("✓") + output.count("✗") == 1 + len(question.options)
    assert ProgressFile().read().record("question", question.id).done
    assert "unknown exercise or question 'none'" in output_of(ask, "none")


def test_a_notebook_works_if_progress_cannot_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("INLAYER_DATA", str(tmp_path / "file"))
    question = next(iter(open_course().questions.values()))
    ask(question.id, SEED)
    answer(question.id, "a")
    assert "(progress is not saved: " in capsys.readouterr().out


def test_task_cells_are_found(tmp_path: Path) -> None:
    lesson = open_course().lesson("forward")
    (path,) = write_notebooks(tmp_path, [lesson])
    found = task_cells(path.read_text(encoding="utf-8"))
    assert found == [(task.id, task.start.rstrip()) for task in lesson.tasks]
    cells = [{"cell_type": "code", "source": "%%task  a \nx\n"}, {"cell_type": "code", "source": "# %%task b\n"}]
    cells += [{"cell_type": "code", "source": "%%task c"}, {"cell_type": "markdown", "source": "%%task d\n"}]
    assert task_cells(json.dumps({"cells": cells})) == [("a", "x\n"), ("c", "")]
    for bad in ("", "[]", "{}", '{"cells": 1}', '{"cells": [1]}', '{"cells": [{"cell_type": "code", "source": 1}]}'):
        with pytest.raises(InputError, match="it is not a notebook"):
            task_cells(bad)


def test_task_magic_reports_unknown_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    class Shell:
        def register_magic_function(self, function: Any, magic_kind: str, magic_name: str) -> None:
            self.magic = {(magic_kind, magic_name): function}

        def push(self, names: dict[str, Any]) -> None:
            self.names = names

    shell = Shell()
    load_ipython_extension(shell)
    assert shell.names == {"ask": ask, "answer": answer}
    shell.magic["cell", "task"]("gathered", "")
    assert capsys.readouterr().out.startswith("unknown task 'gathered'; did you mean gather?")


# ---- in a kernel


def run_all(book: Any, folder: Path) -> list[str]:
    """What each cell printed; a cell that raises is an error. A thread, because browser tests use the event loop."""
    client = NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, client.async_execute()).result()
    return ["".join(output.get("text", "") for output in cell.get("outputs", ())) for cell in book.cells]


def solved(lesson: Lesson, cell: Any) -> Any:
    """Fill in a cell as a learner who gets everything right."""
    cell = nbformat.from_dict({**cell, "id": f"solved-{cell.id}"})
    for task in lesson.tasks:
        if cell.source.startswith(f"%%task {task.id}\n"):
            cell.source = f"%%task {task.id}\n{task.solution}"
    if found := re.fullmatch(r'answer\("(.*)", ""\)', cell.source):
        asked = (open_course().exercises | open_course().questions)[found[1]].ask(SEED)  # type: ignore[operator]
        text = "in my own words" if isinstance(asked, FreeTextQuestion) else right_answer(asked)
        cell.source = f'answer("{found[1]}", "{text}")'
    return cell


@pytest.mark.slow
def test_a_notebook_runs_unsolved_solved_and_wrong(tmp_path: Path) -> None:
    """One kernel for a notebook as written, the same with everything filled in, and one wrong cell."""
    lesson = open_course().lesson("forward")
    task = lesson.tasks[0]
    rule, wrong = next(iter(task.wrong.items()))
    (path,) = write_notebooks(tmp_path, [lesson], seed=SEED)
    book = nbformat.read(path, as_version=4)
    count = len(book.cells)
    book.cells += [solved(lesson, cell) for cell in book.cells]
    use = f"print({task_name(task.id)}.__name__)"
    for number, code in enumerate([use, f"%%task {task.id}\n{wrong}", f"%%task {task.id}\nwhile True print"]):
        book.cells.append(nbformat.v4.new_code_cell(code, id=f"more-{number}"))
    shown = [["".join(output.text) for output in cell.get("outputs", ())] for cell in book.cells[:count]]
    printed = run_all(book, tmp_path)

    for number in range(count):
        text, before, after = book.cells[number].source, printed[number], printed[count + number]
        if text.startswith("%%task "):
            name = text.split()[1]
            assert re.match(rf"{name}: \d+ of \d+ checks passed; .+ failed", before), before
            assert re.match(rf"{name}: (\d+) of \1 checks passed\n", after), after
            assert "Why it works" in after
            assert "Why it works" not in before
        elif text.startswith("answer("):
            assert before.startswith("Write your answer between the quotes")
            assert after.startswith(("✓ Correct.", "Sample answer")), after
        elif book.cells[number].cell_type == "code":
            assert shown[number] == ([before] if before else []), text  # the stored output matches
    assert printed[-3] == f"{task_name(task.id)}\n"  # names defined in a %%task cell can be used
    assert f"rule: {rule}\n" in printed[-2]
    assert "rule: syntax\n" in printed[-1]
    state = ProgressFile().read()
    assert all(state.record("task", one.id).done for one in lesson.tasks)


def task_name(task: str) -> str:
    from importlib import import_module

    name: str = import_module(f"inlayer.learn.content.forward.{task}.check").NAME
    return name
