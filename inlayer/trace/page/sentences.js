// What a change did, in words. A reason is said only where the numbers bear it out.

function changeBanner(step) {
  return current.base && make("p", { class: "changed-note", id: "changed-note" }, changeSentence(step));
}

function changeSentence(step) {
  const { change } = current.trace;
  if (step < 3) return `Nothing changes here. ${laterOn(change)}`;
  const count = tally(step);
  const total = count.same + count.changed;
  const told = [];
  if (count.changed > 0) told.push(`${grouped(count.changed)} of ${counted(total, "number")} changed`);
  else if (total > 0) told.push(`None of ${counted(total, "number")} changed`);
  if (count.new > 0) told.push(counted(count.new, "new one"));
  const reasons = [];
  if (change.swap) reasons.push(...swapReasons(step, change.swap, count));
  if (change.pad) reasons.push(...padReasons(step, count));
  if (change.positions !== null || change.theta !== null) reasons.push(...positionReasons(step, count));
  return `${upper([told.join(", "), reasons.filter(Boolean).join("; ")].filter(Boolean).join(": "))}.`;
}

function laterOn(change) {
  const later = [
    change.swap && "the tokens trade places at step 3",
    change.pad && "padding is added to the ids, at step 3",
    (change.positions !== null || change.theta !== null) && "positions come in at step 6",
  ];
  return `The text is the same; ${listed(later.filter(Boolean))}.`;
}

function placesOf(found) {
  return [...found].map((place) => place.split(",").map(Number));
}

function swapReasons(step, [i, j], count) {
  const cells = current.trace.texts[0].cells;
  const before = current.base.texts[0].cells;
  if (!cells[i] || !cells[j]) return []; // past the tokens shown
  const onlyThese = count.changed > 0 && placesOf(count.tokens).every(([b, t]) => b === 0 && (t === i || t === j));
  const arrived = (field, to, from) => sameVector(cells[to][field], before[from][field]);
  const traded = (field) => arrived(field, i, j) && arrived(field, j, i);
  const two = `tokens ${i} and ${j}`;
  if (cells[i].id === cells[j].id) return [`${two} are the same token`];
  if (step === 3) return [onlyThese && `only ${two} traded their ids`];
  if (step === 4) return [onlyThese && `only ${two} look elsewhere in the file; the table itself is untouched`];
  if (step === 5) return [onlyThese && traded("row") && `only ${two} traded their rows`];
  if (step === 6) {
    const stayed = (field) => field && field.changed === 0 && field.same > 0;
    const { added, angles } = count.byField;
    return [
      stayed(added) && "the position vectors stayed: they belong to the place, not to the token",
      stayed(angles) && "the angles stayed: they belong to the place, not to the token",
    ];
  }
  if (step === 7) {
    if (!onlyThese) return [];
    if (traded("hidden")) return [`${two} traded their hidden states whole: nothing added here tells the order`];
    const kept = current.trace.positions.scheme === current.base.positions.scheme;
    return [kept && `only ${two}: each is now the other's row with its own position`];
  }
  const guessing = count.changed > 0 && current.trace.backward?.loss === "next token";
  return [guessing && "what comes next is asked of other rows now, so the way back differs"];
}

function padReasons(step, count) {
  if (step === 8) {
    const row = current.trace.backward?.rows.find((one) => one.is_padding);
    return [
      count.changed === 0 && count.same > 0 && "padding teaches nothing: no other row noticed",
      row && toNumber(row.norm) === 0 && "the padding row itself receives nothing",
    ];
  }
  const fresh = placesOf(count.fresh);
  const onlyPadding = fresh.every(([b, t]) => current.trace.texts[b].cells[t].mask === 0);
  if (!onlyPadding) return [];
  return [
    fresh.length > 0 && `the new ones belong to ${counted(fresh.length, "padding token")}`,
    count.changed === 0 && count.same > 0 && "the real tokens did not notice",
  ];
}

function positionReasons(step, count) {
  const { trace, base } = current;
  const now = trace.positions.scheme, was = base.positions.scheme;
  if (step < 6) return ["ids and rows do not depend on positions"];
  if (now === was) return thetaReasons(step, count);
  if (step === 6) return [`positions went from ${was} to ${now}`];
  if (step === 8) return [count.changed > 0 && "the loss sees other hidden states"];
  const adds = (scheme) => scheme === "learned" || scheme === "sinusoidal";
  if (adds(now) && adds(was)) return [count.changed > 0 && "another vector is added at every place"];
  if (adds(now)) return [count.changed > 0 && "a vector is added at every place now"];
  if (adds(was)) return [count.changed > 0 && "no vector is added any more"];
  return [`neither ${was} nor ${now} positions add anything to the rows`];
}

// The scheme stayed: what differs, if anything, is its theta.
function thetaReasons(step, count) {
  const { trace, base } = current;
  if (trace.positions.scheme === "sinusoidal") {
    const told = `theta is ${brief(trace.change.theta)} now: the waves have other lengths`;
    return [step === 6 && count.byField.added?.changed > 0 && told];
  }
  const [from, to] = [base, trace].map((one) => one.positions.turnings.map((turning) => turning.theta));
  const s = to.findIndex((theta, index) => theta !== from[index]);
  if (s < 0) return [];
  if (step === 7) return [count.changed === 0 && "rotary positions add nothing here, whatever theta is"];
  const faster = count.byField.angles?.changed > 0 ? ": pairs turn at another speed" : "";
  return [step === 6 && `theta went from ${brief(from[s])} to ${brief(to[s])}${faster}`];
}

// A theta that the model has by itself is no change: what to take back of it, or null.
function withoutEffect() {
  const { trace, base } = current;
  const turns = (one) => one.positions.scheme === "rotary";
  if (!base || trace.change.theta === null || !turns(trace) || !turns(base)) return null;
  const [now, was] = [trace, base].map((one) => one.positions.turnings.map((turning) => turning.theta));
  return sameVector(now, was) ? { positions: null, theta: null } : null;
}

function sameVector(a, b) {
  return a.length === b.length && a.every((value, index) => value === b[index]);
}
