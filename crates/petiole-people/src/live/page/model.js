// Decides what is shown. Pure: it knows no document, and tests/web/model_tests.js tests it.

export const VIEWS = ["list", "map", "changes"];
export const COLUMN_NAMES = {
  device: "Device", state: "State", slots: "Slots", used: "Used by", nodes: "Nodes", brokers: "Brokers",
  address: "Address", configuration: "Configuration",
};
export const COLUMNS = Object.keys(COLUMN_NAMES);
// Choices of the filter by state, besides the names of problems.
export const PROBLEM = "problem";
export const HEALTHY = "healthy";
export const IN_USE = "in use";
export const FREE = "free";

const FILTERS = ["q", "node", "configuration", "state"];

export const idOf = (device) => `${device.namespace}/${device.instance}`;
export const configurationOf = (thing) => `${thing.namespace}/${thing.configuration}`;
export const stateOf = (device) => device.problem ?? device.health;
export const hrefOf = (kind, namespace, name) => `#/${kind}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
export const number = (count) => count.toLocaleString("en");
export const plural = (count, one, several = `${one}s`) => `${number(count)} ${count === 1 ? one : several}`;
// The namespace `default` goes without saying.
export const shortName = (name) => name.replace(/^default\//, "");

// A Pod if it is known, otherwise the node that holds the slot.
export const userOf = (used) => (used.certain && used.pods.length === 1 ? used.pods[0] : used.node);

export const areBrokersBad = (device) => Boolean(device.brokers) && device.brokers.ready < device.brokers.all;

export function brokersOf(device) {
  return device.brokers ? `${device.brokers.ready}/${device.brokers.all}` : "";
}

// The address of a page: `#/list?q=door&node=node-1`, `#/device/default/cams-4c951e`. Who reloads the page gets the same.
export function readAddress(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [page, ...names] = path.split("/").map(decoded);
  const given = new URLSearchParams(query);
  const view = { page: "list", names: [], sort: "", down: given.has("down") };
  for (const name of FILTERS) view[name] = given.get(name) ?? "";
  if (COLUMNS.includes(given.get("sort"))) view.sort = given.get("sort");
  if (VIEWS.includes(page)) view.page = page;
  if (["device", "configuration"].includes(page) && names.length === 2) Object.assign(view, { page, names });
  return view;
}

export function addressOf(view) {
  const query = new URLSearchParams();
  for (const name of [...FILTERS, "sort"]) if (view[name]) query.set(name, view[name]);
  if (view.down) query.set("down", "");
  const path = [view.page, ...view.names].map(encodeURIComponent).join("/");
  return `#/${path}${query.size ? `?${query}` : ""}`;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// The text in which a search looks. It is made once for each device.
const texts = new WeakMap();

function textOf(device) {
  let text = texts.get(device);
  if (text === undefined) {
    const names = device.nodes.map((node) => node.name);
    const users = device.used.flatMap((used) => [used.node, ...used.pods]);
    const all = [device.device, idOf(device), device.configuration, device.address, stateOf(device), device.message, device.resource, ...names, ...users];
    text = all.join("\n").toLowerCase();
    texts.set(device, text);
  }
  return text;
}

export const words = (q) => q.toLowerCase().split(/\s+/).filter(Boolean);
export const hasWords = (text, sought) => sought.every((word) => text.includes(word));

// Names of devices may begin with those of others.
export const isAbout = (text, name) => text.split(/[^\w.-]+/).some((word) => word === name || word === `${name}.`);

function hasState(device, state) {
  switch (state) {
    case "": return true;
    case PROBLEM: return Boolean(device.problem);
    case HEALTHY: return !device.problem;
    case IN_USE: return device.used.length > 0;
    case FREE: return device.used.length < device.capacity;
    default: return device.problem === state;
  }
}

export function chosen(devices, view) {
  const sought = words(view.q);
  return devices.filter((device) =>
    (!view.node || device.nodes.some((node) => node.name === view.node)) &&
    (!view.configuration || configurationOf(device) === view.configuration) &&
    hasState(device, view.state) &&
    hasWords(textOf(device), sought));
}

// Configurations have no node, and only those with a problem are known.
export function chosenConfigurations(configurations, view) {
  if (view.node || (view.state && view.state !== PROBLEM)) return [];
  const sought = words(view.q);
  return configurations.filter((its) =>
    (!view.configuration || configurationOf(its) === view.configuration) &&
    hasWords(`${configurationOf(its)} ${its.reason} ${its.message}`.toLowerCase(), sought));
}

// Numbers in a text compare as numbers: printer 2 comes before printer 10.
const comparable = (text) => text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(8, "0"));

const KEYS = {
  device: (device) => comparable(device.device),
  state: (device) => stateOf(device),
  slots: (device) => device.used.length / (device.capacity || 1),
  used: (device) => device.used.map(userOf).join(),
  nodes: (device) => nodesOf(device).map((node) => comparable(node.name)).join(),
  brokers: (device) => (device.brokers ? device.brokers.ready / device.brokers.all : 2),
  address: (device) => comparable(device.address ?? ""),
  configuration: (device) => comparable(configurationOf(device)),
};

export function sorted(devices, column, isDown) {
  const key = KEYS[column] ?? KEYS.configuration;
  const second = KEYS.device;
  const keyed = devices.map((device) => [key(device), second(device), idOf(device), device]);
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const sign = isDown ? -1 : 1;
  keyed.sort((a, b) => sign * compare(a[0], b[0]) || compare(a[1], b[1]) || compare(a[2], b[2]));
  return keyed.map((entry) => entry[3]);
}

// The rows of the list: whatever has a problem comes first, in whatever order the rest is.
export function rowsOf(state, view) {
  const devices = sorted(chosen(state.devices, view), view.sort, view.down);
  const configurations = chosenConfigurations(state.configurations, view);
  const bad = devices.filter((device) => device.problem);
  const good = devices.filter((device) => !device.problem);
  const rows = [];
  if (bad.length + configurations.length) {
    const counts = [];
    if (configurations.length) counts.push(plural(configurations.length, "Configuration"));
    if (bad.length) counts.push(plural(bad.length, "device"));
    rows.push({ kind: "heading", id: "bad", text: "Problems", count: counts.join(", "), isBad: true });
  }
  for (const its of configurations) rows.push({ kind: "configuration", id: `configuration/${configurationOf(its)}`, its, isTall: true });
  for (const device of bad) rows.push({ kind: "device", id: idOf(device), device, isTall: Boolean(device.message) });
  if (good.length && rows.length) rows.push({ kind: "heading", id: "good", text: "No problem", count: plural(good.length, "device") });
  for (const device of good) rows.push({ kind: "device", id: idOf(device), device });
  return rows;
}

function counted(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  const key = (entry) => comparable(entry[0]);
  return [...counts].sort((a, b) => (key(a) < key(b) ? -1 : 1));
}

// What can be chosen in the filters, each with the number of devices.
export function choicesOf(state) {
  const { devices, configurations } = state;
  const known = counted(devices.map(configurationOf));
  const names = new Set(known.map(([name]) => name));
  const others = configurations.map(configurationOf).filter((name) => !names.has(name));
  return {
    node: counted(devices.flatMap((device) => device.nodes.map((node) => node.name))),
    configuration: [...known, ...others.map((name) => [name, 0])],
    state: counted(devices.map((device) => device.problem).filter(Boolean)),
  };
}

export function numbersOf(state) {
  const sum = (count) => state.devices.reduce((all, device) => all + count(device), 0);
  return {
    problems: state.problems + state.configurations.length,
    devices: state.devices.length,
    used: sum((device) => device.used.length),
    slots: sum((device) => device.capacity),
    ready: sum((device) => device.brokers?.ready ?? 0),
    brokers: sum((device) => device.brokers?.all ?? 0),
  };
}

// The nodes in the order of their numbers.
export function nodesOf(device) {
  const key = (node) => comparable(node.name);
  return [...device.nodes].sort((a, b) => (key(a) < key(b) ? -1 : 1));
}

// The devices by Configuration, and within it by the nodes that have them. Groups with a problem come first, and a
// Configuration that is not ready is a group, also without a device.
export function groupsOf(devices, configurations) {
  const groups = new Map();
  const groupOf = (name) => {
    if (!groups.has(name)) groups.set(name, { name, problems: 0, count: 0, places: new Map() });
    return groups.get(name);
  };
  for (const its of configurations) Object.assign(groupOf(configurationOf(its)), { problems: 1, its });
  for (const device of sorted(devices, "device", false)) {
    const group = groupOf(configurationOf(device));
    group.count += 1;
    if (device.problem) group.problems += 1;
    const place = nodesOf(device).map((node) => node.name).join(", ");
    if (!group.places.has(place)) group.places.set(place, []);
    group.places.get(place).push(device);
  }
  const all = [...groups.values()].map((group) => ({ ...group, places: placesOf(group.places) }));
  return all.sort((a, b) => Boolean(b.problems) - Boolean(a.problems) || (comparable(a.name) < comparable(b.name) ? -1 : 1));
}

function placesOf(places) {
  const key = (place) => comparable(place.name);
  return [...places].map(([name, devices]) => ({ name, devices })).sort((a, b) => (key(a) < key(b) ? -1 : 1));
}

// The nodes of a place in a few words.
export function shortPlace(name) {
  const nodes = name.split(", ");
  if (!name) return "no node";
  return nodes.length > 3 ? `${nodes.slice(0, 2).join(", ")} and ${nodes.length - 2} more` : name;
}

// How long ago, in one unit.
export function agoOf(from, to) {
  const seconds = Math.max(0, Math.round((to - from) / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return plural(Math.floor(seconds / 86400), "day");
}
