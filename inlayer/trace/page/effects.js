// Describes the effect of a change in words. A reason is given only if the numbers confirm it.

function changeBanner(step) {
  return current.base && make("p", { class: "changed-note", id: "changed-note" }, changeSentence(step));
}

function changeSentence(step) {
  const { change } = current.trace;
  if (step < 3) return `Nothing changes in this step. ${laterSteps(change)}`;
  const count = countChanges(step);
  const total = count.same + count.changed, shown = count.new > 0 ? " shown before" : "";
  const counts = [];
  if (count.changed > 0) counts.push(`${grouped(count.changed)} of ${counted(total, "number")}${shown} changed`);
  else if (total > 0) counts.push(`none of the ${counted(total, "number")}${shown} changed`);
  if (count.new > 0) counts.push(`${grouped(count.new)} ${count.new === 1 ? "is" : "are"} new`);
  const reasons = [];
  if (change.swap) reasons.push(...swapReasons(step, change.swap, count));
  if (change.pad) reasons.push(...padReasons(step, count));
  if (change.positions !== null || change.theta !== null) reasons.push(...positionReasons(step, count));
  return `${upper([counts.join(", "), reasons.filter(Boolean).join("; ")].filter(Boolean).join(": "))}.`;
}

function laterSteps(change) {
  const later = [
    change.swap && "the tokens are swapped in step 3",
    change.pad && "padding is added in step 3",
    (change.positions !== null || change.theta !== null) && "positions are applied in step 6",
  ];
  return `The text is the same; ${listed(later.filter(Boolean))}.`;
}

function pairsOf(found) {
  return [...found].map((pair) => pair.split(",").map(Number));
}

function swapReasons(step, [i, j], count) {
  const tokens = current.trace.texts[0].tokens;
  const before = current.base.texts[0].tokens;
  if (!tokens[i] || !tokens[j]) return []; // beyond the tokens shown
  const onlyThese = count.changed > 0 && pairsOf(count.tokens).every(([b, t]) => b === 0 && (t === i || t === j));
  const arrived = (field, to, from) => sameVector(tokens[to][field], before[from][field]);
  const swapped = (field) => arrived(field, i, j) && arrived(field, j, i);
  const two = `tokens ${i} and ${j}`;
  const sameScheme = current.trace.positions.scheme === current.base.positions.scheme;
  if (tokens[i].id === tokens[j].id) return [`${two} are the same token`];
  if (step === 3) return [onlyThese && `only the ids of ${two} were swapped`];
  if (step === 4) return [onlyThese && `only ${two} read different rows; the table itself is unchanged`];
  if (step === 5) return [onlyThese && swapped("row") && `only the rows of ${two} were swapped`];
  if (step === 6) {
    const unchanged = (field) => field && field.changed === 0 && field.same > 0;
    const { added, angles } = count.byField;
    return [
      count.byField.before && swapped("row") && `the rows of ${two} were swapped before positions are added`,
      count.byField.angles?.new > 0 && `${two} were swapped, and angles depend on the position, not on the token`,
      unchanged(added) && "the position embeddings are unchanged: they depend on the position, not on the token",
      unchanged(angles) && "the angles are unchanged: they depend on the position, not on the token",
    ];
  }
  if (step === 7) {
    if (!onlyThese) return [!sameScheme && swapped("row") && `the rows of ${two} were swapped`];
    if (swapped("hidden")) return [`the hidden states of ${two} were swapped, because nothing encodes the order`];
    return [sameScheme && `only ${two} changed: each now has the other's row but keeps its own position`];
  }
  const predicts = count.changed > 0 && current.trace.backward?.loss_kind === "next token";
  return [predicts && "the tokens to predict are different, so the gradients differ"];
}

function padReasons(step, count) {
  if (step === 8) {
    const row = current.trace.backward?.rows.find(({ is_padding: isPadding }) => isPadding);
    return [
      count.changed === 0 && count.same > 0 && "padding contributes no gradient, so the other rows are unchanged",
      row && toNumber(row.norm) === 0 && "the padding row itself receives no gradient",
    ];
  }
  const fresh = pairsOf(count.fresh);
  const onlyPadding = fresh.every(([b, t]) => current.trace.texts[b].tokens[t].mask === 0);
  if (!onlyPadding) return [];
  return [
    fresh.length > 0 && `the new numbers belong to ${counted(fresh.length, "padding token")}`,
    count.changed === 0 && count.same > 0 && "the other tokens are unchanged",
  ];
}

function positionReasons(step, count) {
  const { trace, base } = current;
  const now = trace.positions.scheme, was = base.positions.scheme;
  if (step < 6) return ["ids and rows do not depend on positions"];
  if (now === was) return thetaReasons(step, count);
  if (step === 6) return [`positions changed from ${was} to ${now}`];
  if (step === 8) return [count.changed > 0 && "the loss is computed from different hidden states"];
  const adds = (scheme) => scheme === "learned" || scheme === "sinusoidal";
  if (adds(now) && adds(was)) return [count.changed > 0 && "a different vector is added at each position"];
  if (adds(now)) return [count.changed > 0 && "a vector is now added at each position"];
  if (adds(was)) return [count.changed > 0 && "no vector is added anymore"];
  return [`neither ${was} nor ${now} positions add anything to the rows`];
}

// The scheme is the same, so only theta can differ.
function thetaReasons(step, count) {
  const { trace, base } = current;
  if (trace.positions.scheme === "sinusoidal") {
    const note = `theta is now ${brief(trace.change.theta)}, which changes the wavelengths`;
    return [step === 6 && count.byField.added?.changed > 0 && note];
  }
  const [from, to] = [base, trace].map((walk) => walk.positions.rotary.map(({ theta }) => theta));
  const s = to.findIndex((theta, index) => theta !== from[index]);
  if (s < 0) return [];
  if (step === 7) return [count.changed === 0 && "rotary positions add nothing to the embeddings, regardless of theta"];
  const effect = count.byField.angles?.changed > 0 ? ", which changes the rotary frequencies" : "";
  return [step === 6 && `theta changed from ${brief(from[s])} to ${brief(to[s])}${effect}`];
}

// Returns the change to revert if the chosen theta equals the model's, otherwise null.
function ineffectiveChange() {
  const { trace, base } = current;
  const isRotary = (walk) => walk.positions.scheme === "rotary";
  if (!base || trace.change.theta === null || !isRotary(trace) || !isRotary(base)) return null;
  const [now, was] = [trace, base].map((walk) => walk.positions.rotary.map(({ theta }) => theta));
  return sameVector(now, was) ? { positions: null, theta: null } : null;
}

function sameVector(a, b) {
  return a.length === b.length && a.every((value, index) => value === b[index]);
}
