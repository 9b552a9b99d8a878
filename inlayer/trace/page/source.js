// Data sources: the server's API, or the data inside an exported page. Both have the same interface.

const MAX_TOKENS = 256; // per text; a trace only counts the rest
const MAX_BATCH_TOKENS = 1024; // texts x tokens per request
const MAX_VALUES = 32768; // texts x tokens x channels
const MAX_CACHED = 48; // number of responses kept, so that going back is instant

const HEAD_TOKENS = 16; // number of tokens to choose q and k from

class RequestError extends Error {}

function attentionHeadOf({ texts, positions }) {
  return { tokens: texts[0].tokens.filter((token) => token.mask), rotary: positions.rotary };
}

function openSource() {
  const embedded = JSON.parse(byId("facts").textContent);
  if (embedded !== null) return exportedSource(embedded);
  return servedSource(new URLSearchParams(location.search).get("token") ?? "");
}

function servedSource(token) {
  const cache = new Map();

  async function request(path, body, signal) {
    const key = path + (body ?? "");
    if (cache.has(key)) return cache.get(key);
    const headers = { Authorization: "Bearer " + token };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(path, { method: body === undefined ? "GET" : "POST", headers, body, signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new RequestError("The server does not respond. Is it still running? Your text is kept.");
    }
    const unreadable = { error: `The server responded with status ${response.status} and no data.` };
    const data = await response.json().catch(() => unreadable);
    if (data.error !== undefined) throw new RequestError(data.error);
    if (!response.ok) throw new RequestError(`The server responded with status ${response.status}.`);
    if (!data.is_improving) cache.set(key, data); // a better map will follow
    if (cache.size > MAX_CACHED) cache.delete(cache.keys().next().value);
    return data;
  }

  const get = (path, query, signal) => request(`${path}?${new URLSearchParams(query)}`, undefined, signal);

  // The window of tokens and channels that a view shows.
  const body = ({ from = 0, channel = 0, ...query }) => ({ ...query, first_token: from, first_channel: channel });

  return {
    exported: false,
    models: async (signal) => (await request("/api/models", undefined, signal)).models,
    walk: (query, signal) => {
      const fitting = Math.floor(Math.min(MAX_BATCH_TOKENS, MAX_VALUES / query.dims) / query.texts.length);
      const max_tokens = Math.max(1, Math.min(MAX_TOKENS, fitting));
      return request("/api/walk", JSON.stringify(body({ ...query, max_tokens })), signal);
    },
    // The first channels of a few tokens: those of one attention head.
    attentionHead: async ({ from: _, channel: __, ...query }, dims) => {
      const max_tokens = Math.max(1, Math.min(HEAD_TOKENS, Math.floor(MAX_VALUES / dims / query.texts.length)));
      return attentionHeadOf(await request("/api/walk", JSON.stringify({ ...query, dims, max_tokens })));
    },
    scene: (query, signal) => request("/api/scene", JSON.stringify(body(query)), signal),
    tableScene: (model, signal) => get("/api/table-scene", { model }, signal),
    map: (model, signal) => get("/api/map", { model }, signal),
    gradientStep: (query, learningRates, signal) =>
      request("/api/gradient-step", JSON.stringify({ ...body(query), learning_rates: learningRates }), signal),
    token: (model, id, signal) => get("/api/token", { model, id, k: 8 }, signal),
    initialization: (model, seed, signal) => get("/api/initialization", { model, seed }, signal),
    unavailable: () => "",
    hasToken: () => true,
  };
}

function exportedSource(data) {
  const first = data.walks["|||0"];
  // For a rotary model, "rotary|100||0" and "|100||0" are the same walk.
  const normalized = (positions, theta, swap, pad) => [
    positions === first.positions.scheme ? "" : positions,
    theta === "" ? "" : Number(theta),
    swap.split(",").sort((a, b) => a - b).join(","),
    pad,
  ].join("|");
  const collect = (found) => {
    const collected = new Map();
    for (const [key, value] of Object.entries(found ?? {})) {
      if (!collected.has(normalized(...key.split("|")))) collected.set(normalized(...key.split("|")), value);
    }
    return collected;
  };
  const walks = collect(data.walks), attentionHeads = collect(data.attention_heads), scenes = collect(data.scene);
  const find = ({ positions, theta, swap, pad }, found = walks) =>
    found.get(normalized(positions ?? "", theta ?? "", (swap ?? []).join(","), pad));
  const absent = "not part of this exported page; use `inlayer serve` to see it";
  const required = (value, what) => {
    if (isNothing(value)) throw new RequestError(`${what} is ${absent}.`);
    return value;
  };

  return {
    exported: true,
    texts: data.texts,
    dims: first.dims,
    step: data.step ?? 1,
    change: data.change ? data.walks[data.change].change : UNCHANGED,
    models: async () => data.models,
    walk: async (query) => required(find(query), "This change"),
    attentionHead: async ({ positions, theta, swap }) => {
      const { tokens, rotary } = required(find({ positions, theta, swap: null, pad: 0 }, attentionHeads), "The dial");
      const [i, j] = swap ?? [0, 0];
      const swapped = (t) => (t === i ? j : t === j ? i : t);
      return { rotary, tokens: tokens.map((token, t) => tokens[swapped(t)] ?? token) };
    },
    scene: async (query) => required(find(query, scenes), "The figure for this walk"),
    tableScene: async () => required(data.table_scene, "The figure for the table"),
    map: async () => {
      if (data.map?.note) throw new RequestError(data.map.note);
      return required(data.map, "The map");
    },
    gradientStep: async (query) => required(find(query, collect(data.gradient_step)), "A training step after this change"),
    token: async (model, id) => required(data.tokens[id], `Token ${id}`),
    initialization: async () => required(data.initialization, "The initialization of the table"),
    unavailable: (change) => (find(change) === undefined ? absent : ""),
    hasToken: (id) => data.tokens[id] !== undefined,
  };
}
