// Exercises: the server grades numbers, shapes, and choices; learners compare free-text answers with a sample answer.

const KINDS = {
  number: "graded", choice: "graded",
  free: "self-checked against a sample answer",
};

function exercisesView(lesson) {
  const elements = [
    stageHead("Exercises", `Exercises: ${lesson.title}`, lesson.step, lesson),
    make("p", { class: "lead" }, make("span", { id: "exercises-done" }, doneOf(lesson)),
      "The numbers are random. Get new numbers to practice again."),
    lesson.exercises.map(exerciseCard),
    make("div", { id: "after" }, nextStepLink(nextStep())),
  ];
  return [elements, () => 0];
}

function doneOf({ exercises }) {
  return `${exercises.filter((exercise) => exercise.done).length} of ${exercises.length} done. `;
}

function exerciseCard(exercise, index) {
  const card = make("section", { class: "exercise", "aria-labelledby": `exercise-${index}`, data: { id: exercise.id } });
  const fill = () => card.replaceChildren(
    make("div", { class: "exercise-head" },
      make("h2", { id: `exercise-${index}` }, `${index + 1}. ${upper(exercise.title)}`),
      exerciseTag(exercise)),
    prose(exercise.text),
    exercise.kind === "free" ? freeForm(exercise) : gradedForm(exercise, index, fill),
    make("div", { class: "graded", role: "status" }));
  fill();
  return card;
}

function exerciseTag({ done, kind }) {
  return done ? span("tag good", `${DONE} done`) : span("tag", KINDS[kind]);
}

function gradedForm(exercise, index, fill) {
  const name = `answer-${index}`;
  const field = exercise.kind === "choice"
    ? make("fieldset", { class: "picks" }, make("legend", { class: "hidden-text" }, exercise.title),
      exercise.options.map((option, number) => choiceLine(name, letter(number), option)))
    : make("label", { class: "field" }, exercise.is_shape ? "A shape, such as (2, 3, 4)" : "A number",
      make("input", { name, autocomplete: "off", size: 22, class: "mono", inputmode: exercise.is_shape ? null : "text" }),
      exercise.unit && span("", exercise.unit));
  const form = make("form", { class: "answer", autocomplete: "off", data: { seed: exercise.seed }, on: { submit: (event) => {
    event.preventDefault();
    answerExercise(exercise, form, new FormData(form).get(name) ?? "");
  } } },
  field, make("div", { class: "actions" }, make("button", { class: "primary" }, "Answer"),
    button("Show the answer", (event) => revealAnswer(exercise, form, event.currentTarget), { class: "quiet reveal" }),
    button("New numbers", async () => {
      const drawn = await attempt(() => server.exercise(exercise.id, Math.floor(Math.random() * 0x7fffffff)));
      if (!drawn) return;
      Object.assign(exercise, drawn, { done: exercise.done });
      fill();
    }, { class: "quiet" })));
  return form;
}

function letter(number) {
  return String.fromCharCode(97 + number);
}

function choiceLine(name, value, nodes) {
  return make("label", { class: "pick" }, make("input", { type: "radio", name, value }),
    span("pick-text", inline(nodes)));
}

async function answerExercise(exercise, form, answer) {
  const result = form.nextElementSibling;
  if (answer === "") return result.replaceChildren(note("Enter an answer first."));
  try {
    const graded = await server.answer({ exercise: exercise.id, seed: exercise.seed, answer: answer });
    result.replaceChildren(gradedView(graded));
    if (graded.correct) markDone(exercise, form);
    else if (graded.is_valid) refreshCourse();
  } catch (error) {
    result.replaceChildren(make("p", { class: "error" }, error.message));
  }
}

function gradedView({ correct, is_valid: isValid, message }) {
  const word = correct ? "Correct!" : isValid ? "Incorrect." : "This answer could not be parsed.";
  return feedback(correct, word, prose(message));
}

function feedback(correct, word, ...more) {
  return make("div", { class: "feedback " + (correct ? "good" : "bad") },
    make("p", { class: "feedback-title" }, `${correct ? MARKS.passed : MARKS.failed} ${word}`), more);
}

// Like "?" in the terminal: shows the answer; the exercise remains unfinished and gets other numbers.
async function revealAnswer(exercise, form, pressed) {
  const shown = await attempt(() => server.answer({ exercise: exercise.id, seed: exercise.seed, reveal: true }));
  if (!shown) return;
  for (const input of form.querySelectorAll("input, .primary")) input.disabled = true;
  pressed.disabled = true;
  showMarks(form, shown, null);
  form.nextElementSibling.replaceChildren(make("div", { class: "feedback" },
    make("p", { class: "feedback-title" }, "The answer: ", inline(shown.answer)),
    prose(shown.message),
    note(exercise.done ? "You have already done this exercise." : "This exercise remains unfinished. Try it again with new numbers.")));
}

// Options with a mark, a word, and the reason; the learner's choice is highlighted.
function showMarks(form, { option_results: results, reasons }, chosen) {
  const lines = form.querySelectorAll(".pick");
  reasons.forEach((reason, number) => {
    if (reason === null) return;
    lines[number].classList.add(results[number] ? "good" : "bad");
    const word = (results[number] ? `${MARKS.passed} Correct` : `${MARKS.failed} Incorrect`) +
      (number === chosen ? ", your answer" : "");
    lines[number].append(make("span", { class: "pick-reason" }, make("strong", { class: "pick-word" }, word), ". ", inline(reason)));
  });
  if (chosen !== null) lines[chosen].classList.add("chosen");
}

function markDone(exercise, inside) {
  exercise.done = true;
  inside.closest(".exercise").querySelector(".tag").replaceWith(exerciseTag(exercise));
  byId("exercises-done").textContent = doneOf(lessons.get(view.lesson));
  refreshCourse();
}

function freeForm(exercise) {
  const area = make("textarea", { rows: 4, "aria-label": `Your answer: ${exercise.title}`,
    placeholder: "Write your answer first. It stays on this page." });
  const compared = make("div", { class: "compared" });
  const compare = async () => {
    const sample = await attempt(() => server.answer({ exercise: exercise.id, seed: exercise.seed, answer: area.value }));
    if (!sample) return;
    const boxes = sample.points.map(() => make("input", { type: "checkbox" }));
    compared.replaceChildren(
      make("h3", {}, "Sample answer"), prose(sample.sample_answer),
      make("h3", {}, "Does your answer cover these points?"),
      make("ul", { class: "points" }, sample.points.map((point, number) => make("li", {},
        make("label", { class: "pick" }, boxes[number], span("pick-text", inline(point)))))),
      button("My answer covers the checked points", () => compareWithSample(exercise, area, sample.points, boxes), { class: "primary matches-sample" }));
  };
  return make("div", { class: "answer" }, area,
    make("div", { class: "actions" }, button("Compare with a sample answer", compare)), compared);
}

// Done when the answer contains every point; missing points are listed.
async function compareWithSample(exercise, area, points, boxes) {
  const result = area.closest(".exercise").querySelector(".graded");
  const missing = points.filter((_, number) => !boxes[number].checked);
  const count = `${points.length - missing.length} of ${counted(points.length, "point")}`;
  if (missing.length) {
    result.replaceChildren(feedback(false, `${count}. ${exercise.done ? "" : "This exercise remains unfinished. "}Add what is missing:`,
      make("ul", { class: "missing-points" }, missing.map((point) => make("li", {}, inline(point))))));
    return;
  }
  const recorded = await attempt(() => server.answer({ exercise: exercise.id, seed: exercise.seed, matches_sample: true }));
  if (!recorded) return;
  result.replaceChildren(feedback(true, `Done: ${count}, self-assessed.`));
  markDone(exercise, area);
}
