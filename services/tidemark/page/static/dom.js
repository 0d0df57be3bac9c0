// Builds elements. Texts become text nodes: nothing on this page is parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child))));
  return node;
}

export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

export const byId = (id) => document.getElementById(id);

// Changes a text only if it differs, so that a screen reader says a change once and a selection survives.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Draws `make()` into `node` if `content` differs from the last time.
export function draw(node, content, make) {
  const now = JSON.stringify(content);
  if (node.drawn === now) return;
  node.drawn = now;
  node.replaceChildren(...[make()].flat());
}

export function once(run) {
  let made = null;
  return () => (made ??= run());
}
