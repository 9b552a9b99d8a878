"""Text output of the course for terminals and notebooks: lessons, checks, questions, and results.

service -> [terminal] -> cli/learn, notebook
- Markdown through render.markdown; code and commands are never wrapped, so they can be copied
- text from learners is printed line by line, with control characters escaped
- characters missing from the terminal's encoding are replaced: "ok" for ✓, "->" for →
Tested in tests/learn/test_cli.py and tests/learn/test_notebook.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from inlayer.learn.links import link_command
from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, TheoryQuestion
from inlayer.render.glyphs import glyphs_for
from inlayer.render.markdown import MarkdownNode, inline_text, parse, print_fence, print_markdown
from inlayer.render.numbers import pluralize

if TYPE_CHECKING:
    from inlayer.learn.comparison import Comparison
    from inlayer.learn.course import Lesson, Task
    from inlayer.learn.course_steps import CourseOverview, LessonStatus
    from inlayer.learn.grader import Verdict
    from inlayer.learn.questions import AnswerResult, GradedQuestion, Question

MAX_LINES = 20  # printed lines of the learner's code
MAX_QUESTIONS, MAX_QUESTION_TEXT = 5, 66  # limits for a list of questions
REPLACEMENTS = {
    "✓": "ok", "✗": "x", "·": "-", "•": "*", "…": "...", "→": "->", "←": "<-", "×": "x", "≠": "!=", "≤": "<=",
    "≥": ">=", "≈": "~", "−": "-", "±": "+-", "∙": "*", "⋅": "*", "∑": "sum", "Σ": "sum", "√": "sqrt", "θ": "theta",
    "π": "pi", "σ": "sigma", "∂": "d", "∈": "in", "½": "1/2", "²": "^2", "³": "^3", "ᵀ": "^T", "₀": "_0", "₁": "_1",
    "₂": "_2", "ᵢ": "_i", "ⱼ": "_j", "▌": "|", "─": "-", "━": "-", "│": "|", "█": "#", "░": ".", "‘": "'", "’": "'",
    "“": '"', "”": '"', "–": "-", "␣": "_", "⟨": "<", "⟩": ">",
}  # fmt: skip
MARKS = {"passed": ("✓", "green"), "failed": ("✗", "bold red"), "not run": ("·", "dim")}
PRAISE = ("Well done!", "Nice work!", "Great, that works!", "Excellent!")
MISCONCEPTIONS_LINK = re.compile(r"^>\n> \[All misconceptions\]\(misconceptions\.md#\w+\)\n", re.MULTILINE)
TRAILING_SPACES = re.compile(r" +$", re.MULTILINE)


class EncodedOutput:
    """A stream that replaces characters missing from its encoding and strips trailing spaces."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        encode = partial(str.encode, encoding=stream.encoding or "utf-8", errors="ignore")
        self.table = str.maketrans({char: ascii_text for char, ascii_text in REPLACEMENTS.items() if not encode(char)})

    def write(self, text: str) -> int:
        return int(self.stream.write(TRAILING_SPACES.sub("", text.translate(self.table))))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class CoursePrinter:
    """Prints the parts of the course on a console."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.glyphs = glyphs_for(console.encoding, color=False)

    def line(self, text: str = "", style: str = "", indent: int = 0, *, wrap: bool = True) -> None:
        """Print a line without markup. It wraps with a hanging indent unless `wrap` is False."""
        content = Text(text, style=style)
        padded = Padding(content, (0, 0, 0, indent), expand=False) if indent and text else content
        self.console.print(padded, soft_wrap=not wrap)

    def commands(self, text: str, *commands: str) -> None:
        """Print a line, and below it the commands to type, which are never wrapped."""
        self.line(text)
        for command in commands:
            self.line(f"  {command}", style="cyan", wrap=False)

    def heading(self, text: str) -> None:
        self.line(text, style="bold")

    def untrusted(self, text: str, *, indent: int = 4, max_lines: int = MAX_LINES, style: str = "dim") -> None:
        """Print the first lines of untrusted text, with control characters escaped."""
        lines = text.splitlines()
        for line in lines[:max_lines]:
            self.line(self.glyphs.escape(line.expandtabs(4)), style=style, indent=indent)
        if len(lines) > max_lines:
            more = pluralize(len(lines) - max_lines, "more line")
            self.line(f"{self.glyphs.more} and {more}", style=style, indent=indent)

    def markdown(self, text: str, *, except_for: str = "") -> None:
        """Print a text with the commands for its links, except one that is printed elsewhere."""

        def command(address: str) -> str | None:
            typed = link_command(address)
            return None if typed == except_for else typed

        print_markdown(self.console, parse(text), command)

    def markdown_line(self, text: str, indent: int, style: str = "") -> None:
        for node in parse(text):
            self.console.print(Padding(inline_text(node.children, style), (0, 0, 0, indent)))

    # ---- lessons and tasks

    def lessons(self, overview: CourseOverview) -> None:
        table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
        table.add_column("", justify="right", no_wrap=True)
        table.add_column("lesson", no_wrap=True, style="bold")
        table.add_column("", overflow="fold")
        for name in ("read", "tasks", "exercises", "quiz"):
            table.add_column(name, justify="right", no_wrap=True)
        for status in overview.lessons:
            cells = [Text("✓", style="green") if status.read.done_at else Text("·")]
            for done, total in list(status.counts.values())[1:]:
                cells.append(Text(f"{done}/{total}", style="green" if done == total else ""))
            table.add_row(str(status.lesson.number), status.lesson.id, Text(status.lesson.title), *cells)
        self.console.print(table)

    def lesson_status(self, status: LessonStatus) -> None:
        lesson = status.lesson
        self.heading(f"{lesson.number}. {lesson.title}")
        self.item(f"inlayer learn read {lesson.id}", done=status.read.done_at)
        self.line()
        self.heading("Tasks (graded)")
        for task, record in status.tasks:
            notes = [
                f"passed before; last check: {record.summary}" if record.fails_again else record.summary,
                "solution viewed" if record.solution_seen_at else "",
                "skipped" if record.skipped_at else "",
            ]
            note = "; ".join(filter(None, notes))
            self.item(f"{task.id}: {task.title}{f' ({note})' if note else ''}", done=record.done_at)
        self.line()
        self.heading("Exercises (graded or self-checked)")
        for exercise, answered in status.exercises:
            skipped = ", skipped" if answered.skipped_at else ""
            self.item(f"{exercise.id}: {exercise.title} ({exercise.ask(0).grading}{skipped})", done=answered.done_at)
        self.line()
        self.heading("Quiz")
        correct, total = status.counts["quiz"]
        repeat = f"; {status.n_due} missed, to repeat" if status.n_due else ""
        self.item(f"{correct} of {total} questions correct{repeat}", done=correct == total)

    def item(self, text: str, *, done: object) -> None:
        grid = Table.grid(Column(width=4), Column(overflow="fold"))  # a long line wraps under its text
        grid.add_row(f"  {'✓' if done else '·'}", Text(text))
        self.console.print(grid)

    def lesson(self, lesson: Lesson) -> None:
        self.heading(f"{lesson.number}. {lesson.title}")
        self.line()
        text, boxes = MISCONCEPTIONS_LINK.subn("", lesson.text)  # one command at the end instead of one per box
        walk = f"inlayer walk --step {lesson.step}"
        self.markdown(text, except_for=walk)
        self.commands("In the walk:", walk)
        if boxes:
            self.commands("All misconceptions:", "inlayer learn misconceptions")
        self.line()

    def task(self, task: Task) -> None:
        self.heading(f"Task {task.id}: {task.title}")
        self.line()
        self.markdown(task.text)

    def checks(self, verdict: Verdict) -> None:
        """Print each check, the feedback on the failed one, and what the code printed."""
        self.line(f"{verdict.task}: {verdict.summary}", style="bold green" if verdict.passed else "bold")
        table = Table.grid(padding=(0, 1))
        for result in verdict.results:
            mark, style = MARKS[result.state]
            note, dim = (" (not run)", "dim") if result.state == "not run" else ("", "")
            description = Text(result.description + note, style=dim)
            table.add_row(Text(f"  {mark}", style=style), Text(f"{result.name} ", style=dim), description)
        self.console.print(table)
        if verdict.failure is not None:
            self.line()
            self.untrusted(verdict.failure.message, max_lines=60, style="", indent=2)
            self.line(f"rule: {verdict.failure.rule}", style="dim", indent=2)
            for line in ("", *verdict.failure.feedback) if verdict.failure.feedback else ():
                self.line(f"  {self.glyphs.escape(line)}".rstrip(), wrap=False)
        if verdict.printed.strip():
            self.line()
            self.line("your code printed:", style="dim", indent=2)
            self.untrusted(verdict.printed.rstrip("\n"))
        self.line()

    def passed(self, task: Task, verdict: Verdict, comparison: Comparison | None) -> None:
        """Print the parts that follow a pass: praise, why it works, and the learner's tensor in the walk."""
        self.line(PRAISE[verdict.seed % len(PRAISE)], style="bold green")
        self.line()
        self.explanation(task)
        if comparison is None:
            self.commands("See it in the walk:", f"inlayer walk --step {task.step}")
            return
        from inlayer.learn.assertions import format_value
        from inlayer.trace.terminal import show

        self.heading("In the walk")
        show(comparison.trace, self.console, step=task.step)
        self.line()
        self.line("Your result", style="bold", indent=3)
        self.untrusted(format_value(comparison.tensor), indent=3, style="")
        self.line(comparison.message, indent=3)

    def explanation(self, task: Task) -> None:
        self.heading("Why it works")
        self.markdown(task.explanation)

    def hint(self, task: Task, level: int) -> None:
        self.heading(f"{task.id}: hint {level} of {len(task.hints)}")
        self.markdown(task.hints[level - 1])

    def solution(self, task: Task, *, passed: bool) -> None:
        self.heading(f"{task.id}: a solution")
        print_fence(self.console, MarkdownNode(kind="fence", info="python", text=task.solution))
        self.line()
        self.explanation(task)
        if not passed:
            note = "Recorded: solution viewed. You can still pass the task: write your own solution and check it."
            self.line(note, style="dim")

    # ---- questions

    def question(self, question: TheoryQuestion) -> None:
        """Print a question with its options or the form of its answer."""
        self.markdown(question.text)
        if isinstance(question, ChoiceQuestion):
            for index, option in enumerate(question.options):
                self.option(index, option.text)
        elif isinstance(question, NumberQuestion):
            self.line(f"Your answer is {question.form}; it is graded.", style="dim")
        else:
            self.line("This answer is not graded: you compare it with a sample answer.", style="dim")

    def option(self, index: int, text: str, mark: str = "") -> None:
        table = Table.grid(padding=(0, 1))
        letter = Text(f"  {chr(ord('a') + index)}{f' {mark}' if mark else ''}", style="bold")
        table.add_row(letter, *(inline_text(node.children) for node in parse(text)[:1]))
        self.console.print(table)

    def reasons(self, choice: ChoiceQuestion) -> None:
        """Print every option with its reason, once the question is answered."""
        for index, option in enumerate(choice.options):
            self.option(index, option.text, "✓" if option.correct else "✗")
            self.markdown_line(option.reason, 6, "dim")

    def revealed(self, question: GradedQuestion) -> None:
        """Print the answer of an exercise that the learner gave up on."""
        if isinstance(question, NumberQuestion):
            self.line(question.formatted_answer, style="bold")
            self.markdown(question.explanation)
        else:
            self.reasons(question)
        self.line("The exercise remains unfinished and will use other numbers next time.", style="dim")

    def answer_result(self, result: AnswerResult) -> None:
        style = "bold green" if result.correct else "bold red"
        self.line("✓ Correct." if result.correct else "✗ Incorrect.", style=style)
        self.markdown(result.message)

    def sample_answer(self, question: FreeTextQuestion, *, with_points: bool = False) -> None:
        self.heading("Sample answer")
        self.markdown(question.sample_answer)
        for point in question.points if with_points else ():
            self.line(f"[ ] {point}", indent=2)

    def question_list(self, questions: Iterable[Question]) -> None:
        listed = list(questions)
        for question in listed[:MAX_QUESTIONS]:
            text = " ".join(node.plain for node in parse(question.text))
            self.line(f"{shorten(text, MAX_QUESTION_TEXT, placeholder='…')} ({question.lesson})", indent=2)
        if len(listed) > MAX_QUESTIONS:
            self.line(f"and {len(listed) - MAX_QUESTIONS} more", indent=2)

    # ---- progress

    def next_step(self, overview: CourseOverview, *, with_current: bool = False) -> None:
        """Print the next step and its command; with `with_current`, also the task in progress."""
        step = overview.next_step
        if with_current and (current := overview.current_task) is not None:
            self.commands(f"In progress: {current.id}, {current.title}", "inlayer learn check")
        if step is not None:
            skipped = " (skipped before)" if step.is_skipped else ""
            self.commands(f"Next: {step.title}{skipped}", "inlayer learn next")
            return
        self.line("You have finished the course: every lesson, task, exercise, and quiz.", style="bold")
        if overview.due:
            self.commands(f"Questions you missed and should repeat: {len(overview.due)}", "inlayer learn quiz")
