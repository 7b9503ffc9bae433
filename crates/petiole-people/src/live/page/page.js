"use strict";
// Shows the state that the server sends at each change. Names come from devices on the network, so they are only ever
// set as text.

const SVG = "http://www.w3.org/2000/svg";
const ROW = 34;
const BOX = 26;
const COLUMN = { node: { x: 0, width: 180 }, device: { x: 270, width: 230 }, pod: { x: 590, width: 340 } };

const byId = (id) => document.getElementById(id);

function element(name, text, className) {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function show(state) {
  byId("summary").textContent = `${state.place}: ${state.summary}`;
  showError(state.error);
  document.title = state.problems ? `(${state.problems}) Devices` : "Devices";
  byId("devices").replaceChildren(...state.devices.map(row));
  if (!state.devices.length) byId("devices").append(emptyRow(state.hint));
  drawMap(state.devices);
  byId("changes").replaceChildren(...state.changes.map(change));
}

function showError(error) {
  byId("error").hidden = !error;
  byId("error").textContent = error ?? "";
}

function row(device) {
  const cells = [
    [device.device],
    [device.health, device.healthy ? "good" : "bad"],
    [`${device.used.length}/${device.capacity}`],
    [users(device).join(", ") || "none", device.used.length ? "" : "none"],
    [device.nodes.map((node) => node.healthy ? node.name : `${node.name} (does not see it)`).join(", ")],
    [device.address ?? "none", device.address ? "" : "none"],
    [`${device.namespace}/${device.instance}`],
    [device.configuration],
  ];
  const line = document.createElement("tr");
  line.append(...cells.map(([text, className]) => element("td", text, className)));
  return line;
}

function emptyRow(hint) {
  const line = document.createElement("tr");
  const cell = element("td", `No devices. ${hint}`, "none");
  cell.colSpan = 8;
  line.append(cell);
  return line;
}

function change({ at, text }) {
  const line = document.createElement("li");
  line.append(element("time", at.slice(11, 19)), document.createTextNode(text));
  return line;
}

// A Pod if it is known, otherwise the node that holds the slot.
const users = (device) => device.used.map((used) => used.pods.length === 1 ? `${used.pods[0]} on ${used.node}` : used.node);

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function box(column, name, index, isBad) {
  const { x, width } = COLUMN[column];
  const y = index * ROW + 2;
  const fits = Math.floor(width / 7.6);
  const short = name.length > fits ? `${name.slice(0, fits - 1)}…` : name;
  const group = shape("g", {});
  group.append(
    shape("title", {}, name),
    shape("rect", { x: x + 1, y, width, height: BOX, class: isBad ? "bad" : "" }),
    shape("text", { x: x + 9, y: y + 18 }, short),
  );
  return group;
}

function line(from, fromIndex, to, toIndex, className) {
  const x1 = COLUMN[from].x + COLUMN[from].width + 1;
  const x2 = COLUMN[to].x + 1;
  const [y1, y2] = [fromIndex, toIndex].map((index) => index * ROW + 2 + BOX / 2);
  const middle = (x1 + x2) / 2;
  return shape("path", { d: `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`, class: className });
}

function drawMap(devices) {
  const nodes = [...new Set(devices.flatMap((device) => device.nodes.map((node) => node.name)))].sort();
  const pods = [...new Set(devices.flatMap(users))];
  const lines = [];
  devices.forEach((device, index) => {
    const holders = new Set(device.used.map((used) => used.node));
    for (const node of device.nodes) {
      const className = !node.healthy ? "bad" : holders.has(node.name) ? "used" : "";
      lines.push(line("node", nodes.indexOf(node.name), "device", index, className));
    }
    for (const user of users(device)) lines.push(line("device", index, "pod", pods.indexOf(user), "used"));
  });
  const boxes = [
    ...nodes.map((name, index) => box("node", name, index, false)),
    ...devices.map((device, index) => box("device", device.device, index, !device.healthy)),
    ...pods.map((name, index) => box("pod", name, index, false)),
  ];
  const height = Math.max(nodes.length, devices.length, pods.length) * ROW + 4;
  byId("map").setAttribute("viewBox", `0 0 940 ${height}`);
  byId("map").replaceChildren(...lines, ...boxes);
}

// The browser connects again by itself.
const events = new EventSource("/events");
events.onmessage = (event) => show(JSON.parse(event.data));
events.onerror = () => showError("The server does not answer. What is shown may be old.");
