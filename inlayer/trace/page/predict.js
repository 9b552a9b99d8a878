// Quiz mode: a question hides each step until it is answered or skipped.

const revealed = new Map(); // step -> the verdict shown above it, or null; for the current walk
const questionIndex = {}; // step -> index of its current question
let score = { right: 0, all: 0 };

function hideSteps() {
  revealed.clear();
}

function isHidden(step) {
  return state.predict && !revealed.has(step) && questionsFor(current.trace, step).length > 0;
}

// In step 3, questions are answered by clicking tokens on the stage or the map.
function areTokensHidden(step) {
  return isHidden(step) || (step < 3 && isHidden(3));
}

function questionCard(step) {
  const questions = questionsFor(current.trace, step);
  const question = questions[(questionIndex[step] ?? 0) % questions.length];
  const check = (event) => {
    event.preventDefault();
    const written = String(new FormData(event.target).get("answer") ?? "");
    if (written.trim() === "") return;
    const right = isCorrect(question, written);
    score = { right: score.right + right, all: score.all + 1 };
    reveal(step, { question, right, written });
  };
  const soFar = score.all ? `; ${score.right} of ${score.all} correct so far` : "";
  return make("form", { class: "question", on: { submit: check }, "aria-labelledby": "question" },
    make("p", { class: "question-count" }, `Predict first${soFar}`),
    make("h2", { id: "question" }, question.prompt),
    question.kind === "choice" ? choices(question) : answerField(question),
    make("div", { class: "question-actions" },
      make("button", { type: "submit", class: "primary" }, "Check"),
      questions.length > 1 && button("Another question", () => askAnother(step)),
      button("Show the answer", () => reveal(step, null))));
}

function answerField({ kind }) {
  return make("label", { class: "field" }, kind === "shape" ? "Your answer, such as 2, 5, 64" : "Your answer",
    make("input", {
      name: "answer", class: "mono", inputmode: kind === "whole" ? "numeric" : "text", autocomplete: "off",
      spellcheck: "false",
    }));
}

function choices({ options }) {
  return make("fieldset", { class: "choices" }, make("legend", { class: "hidden-text" }, "Your answer"),
    options.map((option) => make("label", {},
      make("input", { type: "radio", name: "answer", value: option, required: true }), option)));
}

function askAnother(step) {
  revealed.delete(step);
  questionIndex[step] = (questionIndex[step] ?? 0) + 1;
  renderStage();
  markTokens();
  focusQuestion();
}

function reveal(step, verdict) {
  revealed.set(step, verdict);
  renderStage();
  markTokens();
  byId("stage").focus({ preventScroll: true });
  if (verdict) announce(`${verdictWords(verdict)} ${verdict.question.explanation}`);
}

function verdictWords({ question, right, written }) {
  const answer = formatAnswer(question);
  if (right) return `Correct: ${answer}.`;
  const why = diagnose(question, written);
  return `Not quite: the answer is ${answer}; you entered ${cut(written.trim(), 40)}.${why && ` ${why}`}`;
}

function verdictBanner(step) {
  const verdict = state.predict ? revealed.get(step) : null;
  if (!verdict) return null;
  return make("div", { class: "verdict-banner " + (verdict.right ? "right" : "wrong") },
    make("p", { id: "verdict" },
      span("muted", verdict.question.prompt), " ", make("strong", {}, verdictWords(verdict)), " ",
      verdict.question.explanation),
    button("Another question", () => askAnother(step), { class: "quiet" }));
}

function focusQuestion() {
  document.querySelector(".question input")?.focus();
}
