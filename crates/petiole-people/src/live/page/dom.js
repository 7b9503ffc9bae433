// Makes elements. Names come from devices on the network, so they are only ever set as text.

export const byId = (id) => document.getElementById(id);

// Attributes that are undefined, null or false are left out.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null && child !== false && child !== 0));
  return made;
}

// Writes only what is new: a text that is written again loses its selection, and costs time.
export function setText(its, text) {
  if (its.textContent !== text) its.textContent = text;
}

export function setClass(its, name) {
  if (its.className !== name) its.className = name;
}

// Text in which `code` has marks.
export function withCode(text) {
  return text.split("`").map((part, n) => (n % 2 ? element("code", {}, part) : part));
}
