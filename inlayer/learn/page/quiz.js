// The quiz: one question at a time. After a wrong answer, the reason is shown, and the question returns later with its
// options shuffled. Questions missed in an earlier quiz come first.

const RETRY_AFTER = 2; // number of questions until a missed one returns

const quizRun = { lesson: null, queue: [], missed: new Set(), total: 0 };

function quizView(lesson) {
  startQuiz(lesson);
  return [[
    stageHead("Quiz", `Quiz: ${lesson.title}`, lesson.step, lesson),
    make("p", { class: "note", id: "quiz-tally" }),
    make("div", { id: "question" }),
  ], () => {
    renderTally();
    renderQuestion();
  }];
}

function startQuiz(lesson) {
  Object.assign(quizRun, { lesson, queue: [...lesson.questions], missed: new Set(), total: lesson.questions.length });
}

function renderQuestion() {
  const [question] = quizRun.queue;
  byId("question").replaceChildren(...(question ? [questionCard(question)] : [quizEnd()]));
}

// The same counts as in the list of lessons: a missed question is included again once it is no longer due.
function renderTally() {
  const tally = byId("quiz-tally");
  if (!tally || !course.runs_code) return;
  const lesson = course.lessons.find(({ id }) => id === quizRun.lesson.id);
  tally.textContent = `Lesson ${lesson.number}: ${quizCounts(lesson)}`;
}

function quizCounts({ counts: { quiz }, due }) {
  return `${quiz.done} of ${quiz.total} correct` + (due ? `, ${due} to repeat` : "");
}

function questionTitle({ id }) {
  if (quizRun.missed.has(id)) return "Repeated question";
  const unasked = quizRun.queue.filter(({ id }) => !quizRun.missed.has(id)).length;
  return `Question ${quizRun.total - unasked + 1} of ${quizRun.total}`;
}

// A repeated question may come from an earlier lesson.
function origin(question) {
  if (question.lesson === quizRun.lesson.id) return "repeated";
  const { number, title } = course.lessons.find(({ id }) => id === question.lesson);
  return `repeated from lesson ${number}: ${title}`;
}

function questionCard(question) {
  const back = quizRun.missed.has(question.id);
  const form = make("form", { class: "answer", data: { seed: question.seed }, on: { submit: (event) => {
    event.preventDefault();
    const answer = new FormData(form).get("option");
    if (answer !== null) answerQuestion(question, answer, form);
    else form.nextElementSibling.replaceChildren(note("Choose an option first."));
  } } },
  make("fieldset", { class: "picks" },
    make("legend", { class: "hidden-text" }, "Options"),
    question.options.map((option, number) => choiceLine("option", letter(number), option))),
  make("div", { class: "actions" }, make("button", { class: "primary", id: "answer-question" }, "Answer")));
  return make("section", { class: "exercise", "aria-labelledby": "question-title", data: { id: question.id } },
    make("div", { class: "exercise-head" },
      make("h2", { id: "question-title", tabindex: -1 }, questionTitle(question)),
      (back || question.due > 0) && span("tag", origin(question))),
    prose(question.text), form, make("div", { class: "graded", role: "status" }));
}

async function answerQuestion(question, answer, form) {
  const result = form.nextElementSibling;
  const repeated = quizRun.missed.has(question.id);
  const graded = await attempt(() => server.answer({ question: question.id, seed: question.seed, answer: answer, repeated }));
  if (!graded) return;
  for (const input of form.querySelectorAll("input")) input.disabled = true;
  showMarks(form, graded, answer.charCodeAt(0) - 97);
  quizRun.queue.shift();
  if (!graded.correct) {
    quizRun.missed.add(question.id);
    quizRun.queue.splice(Math.min(RETRY_AFTER, quizRun.queue.length), 0, graded.next_try);
  }
  byId("answer-question").remove();
  result.replaceChildren(feedback(graded.correct, graded.correct ? "Correct!" : "Incorrect. This question will come back."));
  const next = button(quizRun.queue.length ? "Next question" : "Finish", () => {
    renderQuestion();
    (byId("question-title") ?? byId("quiz-end")).focus();
  }, { class: "primary", id: "next-question" });
  form.querySelector(".actions").append(next);
  next.focus();
  refreshCourse();
}

function quizEnd() {
  const { missed, total, lesson } = quizRun;
  const first = total - missed.size;
  return make("section", { class: "quiz-end" },
    make("h2", { id: "quiz-end", tabindex: -1 }, `${first} of ${total} correct on the first try`),
    make("p", { class: "lead" }, missed.size
      ? `${counted(missed.size, "question")} came back until you answered correctly. The next quiz starts with what you missed.`
      : "Perfect score!"),
    make("div", { class: "actions" },
      button("Retake quiz", async () => {
        const fresh = await attempt(() => server.lesson(lesson.id));
        if (!fresh) return;
        lesson.questions = fresh.questions;
        startQuiz(lesson);
        renderQuestion();
      }),
      nextStepLink(nextStep())));
}
