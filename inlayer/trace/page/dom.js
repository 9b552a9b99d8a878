// DOM helpers. Content is always inserted as text; no code on this page parses markup from a string.

const SVG = "http://www.w3.org/2000/svg";

function byId(id) {
  return document.getElementById(id);
}

function make(tag, attributes = {}, ...children) {
  return populate(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return populate(document.createElementNS(SVG, tag), attributes, children);
}

function populate(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (isNothing(value)) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "data") {
      for (const [key, item] of Object.entries(value)) {
        if (!isNothing(item)) element.dataset[key] = item;
      }
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat(Infinity).filter((child) => !isNothing(child)));
  return element;
}

function isNothing(value) {
  return value === null || value === undefined || value === false;
}

// Sets styles through the object model, because the content security policy blocks style attributes.
function styled(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
  return element;
}

// ---- common elements

function span(name, ...children) {
  return make("span", { class: name }, children);
}

function note(...children) {
  return make("p", { class: "note" }, children);
}

function code(text) {
  return make("code", {}, text);
}

function digits(text) {
  return span("number", text);
}

function button(label, click, attributes = {}) {
  return make("button", { type: "button", on: { click }, ...attributes }, label);
}

// Steps 1 and 2 have no tensors yet.
function codeLine(text, step) {
  return make("p", { class: "code-line" }, span("line-name", step < 3 ? "Python" : "PyTorch"), code(text));
}

function facts(pairs, name = "facts") {
  const present = pairs.filter(([, value]) => !isNothing(value) && value !== "");
  const pair = ([term, value]) => make("div", { class: "fact-pair" }, make("dt", {}, term), make("dd", {}, value));
  return make("dl", { class: name }, present.map(pair));
}

function announce(text) {
  byId("live").textContent = text;
}
