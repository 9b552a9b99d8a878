// Where facts come from: the API of the server, or what an exported page carries. Both answer the same questions.

const MOST_TOKENS = 256; // of one text; a trace counts the rest
const MOST_PLACES = 1024; // texts x tokens that the server walks at once
const MOST_VALUES = 32768; // texts x tokens x channels
const KEPT = 48; // answers remembered, so that going back is instant

class Refused extends Error {}

function openSource() {
  const embedded = JSON.parse(byId("facts").textContent);
  if (embedded !== null) return exportedSource(embedded);
  return servedSource(new URLSearchParams(location.search).get("token") ?? "");
}

function servedSource(token) {
  const known = new Map();

  async function ask(path, body, signal) {
    const key = path + (body ?? "");
    if (known.has(key)) return known.get(key);
    const headers = { Authorization: "Bearer " + token };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(path, { method: body === undefined ? "GET" : "POST", headers, body, signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused("The server does not answer. Is it still running? What you typed is kept.");
    }
    const wordless = { error: `The server answered ${response.status} without facts.` };
    const answer = await response.json().catch(() => wordless);
    if (answer.error !== undefined) throw new Refused(answer.error);
    if (!response.ok) throw new Refused(`The server answered ${response.status}.`);
    known.set(key, answer);
    if (known.size > KEPT) known.delete(known.keys().next().value);
    return answer;
  }

  const asking = (path, query, signal) => ask(`${path}?${new URLSearchParams(query)}`, undefined, signal);

  return {
    exported: false,
    models: async (signal) => (await ask("/api/models", undefined, signal)).models,
    walk: (query, signal) => {
      const fitting = Math.floor(Math.min(MOST_PLACES, MOST_VALUES / query.dims) / query.texts.length);
      const tokens = Math.max(1, Math.min(MOST_TOKENS, fitting));
      return ask("/api/walk", JSON.stringify({ ...query, tokens }), signal);
    },
    token: (model, id, signal) => asking("/api/token", { model, id, k: 8 }, signal),
    birth: (model, seed, signal) => asking("/api/birth", { model, seed }, signal),
    refusal: () => "",
    hasToken: () => true,
  };
}

function exportedSource(data) {
  const first = data.walks["|||0"];
  // "rotary|100||0" and "|100||0" are the same walk of a model that is rotary by itself.
  const normal = (positions, theta, swap, pad) => [
    positions === first.positions.scheme ? "" : positions,
    theta === "" ? "" : Number(theta),
    swap.split(",").sort((a, b) => a - b).join(","),
    pad,
  ].join("|");
  const walks = new Map();
  for (const [key, walk] of Object.entries(data.walks)) {
    if (!walks.has(normal(...key.split("|")))) walks.set(normal(...key.split("|")), walk);
  }
  const find = ({ positions, theta, swap, pad }) =>
    walks.get(normal(positions ?? "", theta ?? "", (swap ?? []).join(","), pad));
  const absent = "not in this exported page; `inlayer serve` can show it";
  const given = (value, what) => {
    if (isNothing(value)) throw new Refused(`${what} is ${absent}.`);
    return value;
  };

  return {
    exported: true,
    texts: data.texts,
    dims: first.dims,
    step: data.step ?? 1,
    change: data.change ? data.walks[data.change].change : UNCHANGED,
    models: async () => data.models,
    walk: async (query) => given(find(query), "This change"),
    token: async (model, id) => given(data.tokens[id], `Token ${id}`),
    birth: async () => given(data.birth, "The birth of the table"),
    refusal: (change) => (find(change) === undefined ? absent : ""),
    hasToken: (id) => data.tokens[id] !== undefined,
  };
}
