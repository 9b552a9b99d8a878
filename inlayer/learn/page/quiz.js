// The quiz: one question at a time. A wrong answer says why it is wrong, and the question comes back a little later, with
// its options in another order; so do those missed in an earlier sitting, first of all.

const BEHIND = 2; // questions between a miss and the next try

const sitting = { lesson: null, line: [], missed: new Set(), right: 0, total: 0 };

function quizView(lesson) {
  sit(lesson);
  return [[
    stageHead("Quiz", `Quiz: ${lesson.title}`, lesson.step, lesson),
    make("div", { id: "question" }),
  ], renderQuestion];
}

function sit(lesson) {
  Object.assign(sitting, { lesson, line: [...lesson.questions], missed: new Set(), right: 0, total: lesson.questions.length });
}

function renderQuestion() {
  const [question] = sitting.line;
  byId("question").replaceChildren(...(question ? [questionCard(question)] : [quizEnd()]));
}

function standing() {
  const back = sitting.line.filter(({ id }) => sitting.missed.has(id)).length;
  return `${sitting.right} of ${sitting.total} right` + (back ? `, ${back} to come back` : "");
}

// A question that returns may be of an earlier lesson: it says of which.
function whence(question) {
  if (question.lesson === sitting.lesson.id) return "comes back";
  const { number, title } = course.lessons.find(({ id }) => id === question.lesson);
  return `comes back, from lesson ${number}: ${title}`;
}

function questionCard(question) {
  const back = sitting.missed.has(question.id);
  const form = make("form", { class: "answer", data: { seed: question.seed }, on: { submit: (event) => {
    event.preventDefault();
    const said = new FormData(form).get("option");
    if (said !== null) answerQuestion(question, said, form);
    else form.nextElementSibling.replaceChildren(note("Choose an option first."));
  } } },
  make("fieldset", { class: "picks" },
    make("legend", { class: "hidden-text" }, "Options"),
    question.options.map((option, number) => choiceLine("option", letter(number), option))),
  make("div", { class: "actions" }, make("button", { class: "primary", id: "answer-question" }, "Answer")));
  return make("section", { class: "exercise", "aria-labelledby": "question-title", data: { id: question.id } },
    make("div", { class: "exercise-head" },
      make("h2", { id: "question-title", tabindex: -1 }, standing()),
      (back || question.due > 0) && span("tag", whence(question))),
    prose(question.text), form, make("div", { class: "judged", role: "status" }));
}

async function answerQuestion(question, said, form) {
  const place = form.nextElementSibling;
  const again = sitting.missed.has(question.id);
  const judged = await attempt(() => server.answer({ question: question.id, seed: question.seed, answer: said, again }));
  if (!judged) return;
  for (const input of form.querySelectorAll("input")) input.disabled = true;
  showMarks(form, judged, said.charCodeAt(0) - 97);
  sitting.line.shift();
  if (judged.right) sitting.right += 1;
  else {
    sitting.missed.add(question.id);
    sitting.line.splice(Math.min(BEHIND, sitting.line.length), 0, judged.again);
  }
  byId("answer-question").remove();
  byId("question-title").textContent = standing();
  place.replaceChildren(told(judged.right, judged.right ? "Right." : "Not right. This question comes back."));
  const next = button(sitting.line.length ? "Next question" : "Finish", () => {
    renderQuestion();
    (byId("question-title") ?? byId("quiz-end")).focus();
  }, { class: "primary", id: "next-question" });
  form.querySelector(".actions").append(next);
  next.focus();
  refreshCourse();
}

function quizEnd() {
  const { missed, total, lesson } = sitting;
  const first = total - missed.size;
  return make("section", { class: "quiz-end" },
    make("h2", { id: "quiz-end", tabindex: -1 }, `${first} of ${total} right at once`),
    make("p", { class: "lead" }, missed.size
      ? `${counted(missed.size, "question")} came back until the answer was right; the next sitting begins with what was missed.`
      : "Nothing to come back to."),
    make("div", { class: "actions" },
      button("Once more", async () => {
        const fresh = await attempt(() => server.lesson(lesson.id));
        if (!fresh) return;
        lesson.questions = fresh.questions;
        sit(lesson);
        renderQuestion();
      }),
      nextLink(following())));
}
