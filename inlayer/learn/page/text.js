// Course texts: a tree from the server, turned into elements one by one. Unknown tags are dropped.

const TAGS = new Set([
  "p", "ul", "ol", "li", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "em", "strong", "hr", "br", "code",
  "h2", "h3", "h4", "pre", "a", "img", "span", "aside",
]);
const CODE_WORDS = { keyword: "code-keyword", string: "code-string", number: "code-number", comment: "code-comment" };

function prose(nodes, name = "prose") {
  return make("div", { class: name }, nodes.map(toElement));
}

function inline(nodes) {
  return nodes.map(toElement);
}

function toElement(node) {
  if (typeof node === "string") return node;
  const [tag, attributes, children] = node;
  if (!TAGS.has(tag)) return children.map(toElement);
  const inside = children.map(toElement);
  if (tag === "a") return toLink(attributes, inside);
  if (tag === "img") return toPicture(attributes);
  if (tag === "pre") return toBlock(attributes.kind, inside);
  if (tag === "table") return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" },
    make("table", { class: "facts-table" }, inside));
  if (tag === "span") return span(CODE_WORDS[attributes.word] ?? attributes.word ?? "", inside);
  if (tag === "aside") return make("aside", { role: "note" }, inside); // not a landmark, because it is part of the text
  if (tag === "th" && inside.length === 0) return make("td", {});
  const id = attributes.anchor ? "section-" + attributes.anchor : null;
  return make(tag, { id, class: attributes.align === "right" ? "to-right" : null }, inside);
}

function toLink({ walk, texts, task, lesson, misconception, href }, inside) {
  if (walk !== undefined) return walkLink(walk, texts, inside);
  if (task !== undefined) return linkTo({ lesson: lessonOf(task), task }, inside);
  if (lesson !== undefined) return linkTo({ lesson }, inside);
  if (misconception !== undefined) return linkTo({ misconception }, inside);
  if (/^https:\/\//.test(href ?? "")) {
    return make("a", { href, rel: "noreferrer noopener", target: "_blank" }, inside);
  }
  return span("", inside);
}

function toPicture({ src, alt }) {
  if (!src.startsWith("data:image/svg+xml;")) return span("missing", alt);
  return make("span", { class: "scroll picture-frame", tabindex: 0, role: "group", "aria-label": "Picture" },
    make("img", { src, alt, class: "picture" }));
}

const BLOCKS = { python: "Python", output: "Output", formula: "Formula", plain: "Text" };

function toBlock(kind, inside) {
  return make("figure", { class: "block-figure block-" + kind },
    kind === "output" && make("figcaption", { class: "line-name" }, BLOCKS.output),
    make("pre", { tabindex: 0, role: "group", "aria-label": BLOCKS[kind] ?? BLOCKS.plain }, inside));
}
