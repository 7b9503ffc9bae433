// Shows the state that the server sends at each change. What is shown is decided in model.js and layout.js.
import { configurationPage, devicePage, gonePage } from "./device.js";
import { byId, element, setText, withCode } from "./dom.js";
import { makeList } from "./list.js";
import { connect } from "./live.js";
import { makeMap } from "./map.js";
import {
  addressOf, choicesOf, chosen, chosenConfigurations, COLUMN_NAMES, FREE, hasWords, HEALTHY, idOf, IN_USE, isAbout, nodesOf, number, numbersOf,
  plural, PROBLEM, readAddress, rowsOf, stateOf, VIEWS, words,
} from "./model.js";

// A device's page is asked for again when the device changed, and else from time to time.
const ASK_SOONEST = 3000;
const ASK_LATEST = 15000;
// How long a problem lasts is written again after this time.
const AGES = 20000;
const THEMES = ["light dark", "light", "dark"];
const REVERSE = "reverse";

let state;
let view = readAddress(location.hash);
let last = { ...view, page: "list", names: [] };
let asked = { id: "", details: undefined, failure: "", at: 0, of: "" };
let isPlanned = false;
let pointed = "";
// Since when the server does not answer.
let lostAt;

const main = byId("main");
const list = makeList({ root: byId("list"), scroller: main, open: openRow, sort: sortBy });
const map = makeMap({ root: byId("map"), point: showPointed });
const scrolls = { list: 0, map: 0, changes: 0 };

// What happens several times between two frames is drawn once.
function plan() {
  if (isPlanned) return;
  isPlanned = true;
  requestAnimationFrame(() => {
    isPlanned = false;
    draw();
  });
}

function draw() {
  drawViews();
  if (!state) return;
  drawNumbers();
  drawFilters();
  drawError();
  setText(byId("place"), state.place);
  drawLatest();
  const rows = rowsOf(state, view);
  drawFound(rows);
  drawEmpty(rows.length);
  if (view.page === "list") list.show(rows, view);
  if (view.page === "map") map.show(chosen(state.devices, view), chosenConfigurations(state.configurations, view));
  if (view.page === "changes") drawChanges();
  if (view.names.length) drawPage();
  performance.mark("shown");
}

function drawViews() {
  document.body.dataset.view = view.page;
  for (const page of VIEWS) byId(page).hidden = view.page !== page;
  byId("device").hidden = !view.names.length;
  byId("filters").hidden = Boolean(view.names.length);
  for (const link of byId("views").children) {
    const page = link.dataset.view;
    link.href = addressOf({ ...view, page, names: [] });
    link.setAttribute("aria-current", String(page === (view.names.length ? last.page : view.page)));
  }
}

function drawNumbers() {
  const numbers = numbersOf(state);
  document.title = numbers.problems ? `(${numbers.problems}) Devices` : "Devices";
  const text = numbers.problems ? plural(numbers.problems, "problem") : "No problem";
  const problems = element("button", { type: "button", class: numbers.problems ? "pill bad" : "pill good", "aria-pressed": String(view.state === PROBLEM) }, text);
  problems.addEventListener("click", toggleProblems);
  // A narrow window has no room for the second part of the name.
  const count = (text, name, rest = "") => element("span", {}, element("b", {}, text), ` ${name}`, element("span", { class: "long" }, rest));
  const share = (some, all) => `${number(some)}/${number(all)}`;
  const all = [problems, count(number(numbers.devices), numbers.devices === 1 ? "device" : "devices")];
  if (numbers.slots) all.push(count(share(numbers.used, numbers.slots), "slots", " in use"));
  if (numbers.brokers) all.push(count(share(numbers.ready, numbers.brokers), "brokers", " ready"));
  const signature = all.map((its) => its.outerHTML).join("");
  if (byId("numbers").dataset.of === signature) return;
  byId("numbers").dataset.of = signature;
  const hasFocus = byId("numbers").contains(document.activeElement);
  byId("numbers").replaceChildren(...all);
  if (hasFocus) problems.focus();
}

function drawFilters() {
  const choices = choicesOf(state);
  const named = ([name, count]) => [name, `${name} (${count})`];
  fillSelect("node", [["", "All nodes"], ...choices.node.map(named)]);
  fillSelect("configuration", [["", "All Configurations"], ...choices.configuration.map(named)]);
  const general = [["", "Any state"], [PROBLEM, "With a problem"], [HEALTHY, "Without a problem"], [IN_USE, "In use"], [FREE, "With a free slot"]];
  fillSelect("state", [...general, ...choices.state.map(named)]);
  const orders = Object.entries(COLUMN_NAMES).map(([column, name]) => [column, `By ${name}`]);
  const reverse = view.sort ? [[REVERSE, "Reverse"]] : [];
  fillSelect("sort", [["", "Order"], ...orders, ...reverse]);
  if (document.activeElement !== byId("q")) byId("q").value = view.q;
}

function drawFound(rows) {
  byId("found").hidden = !isFiltered();
  const count = rows.filter((row) => row.kind === "device").length;
  setText(byId("found").firstElementChild, view.page === "changes" ? "" : `${number(count)} of ${plural(state.devices.length, "device")}`);
}

function drawLatest() {
  const [change] = state.changes;
  const latest = change ? `${change.at.slice(11, 19)} UTC: ${change.text}` : "";
  setText(byId("latest"), view.page === "map" && pointed ? pointed : latest);
}

const isFiltered = () => Boolean(view.q || view.node || view.configuration || view.state);

function fillSelect(name, choices) {
  const select = byId(name);
  // What is chosen stays a choice, also when no device has it any more.
  if (!choices.some(([value]) => value === view[name])) choices.push([view[name], view[name]]);
  const signature = JSON.stringify(choices);
  if (select.dataset.of !== signature) {
    select.dataset.of = signature;
    select.replaceChildren(...choices.map(([value, text]) => element("option", { value }, text)));
  }
  select.value = view[name];
  select.classList.toggle("chosen", Boolean(view[name]));
}

function drawEmpty(count) {
  const isEmpty = !count && (view.page === "list" || view.page === "map");
  byId("empty").hidden = !isEmpty;
  if (!isEmpty) return;
  const unknown = state.error ? "The devices are not known." : "Reading …";
  const text = !state.known ? unknown : isFiltered() ? "Nothing is like that. Escape, or “Show all”, shows all devices." : `No devices yet. ${state.hint}`;
  byId("empty").replaceChildren(...withCode(text));
}

function drawChanges() {
  const sought = words(view.q);
  const found = state.changes.filter((change) => hasWords(change.text.toLowerCase(), sought));
  const lines = found.map(({ at, text }) => element("li", {}, element("time", {}, `${at.slice(0, 10)} ${at.slice(11, 19)} UTC`), element("span", {}, text)));
  const none = element("li", { class: "none" }, sought.length ? "No change has these words." : "Nothing has changed since the server was started.");
  byId("changes").replaceChildren(...(lines.length ? lines : [none]));
}

function drawPage() {
  const back = addressOf(last);
  const [namespace, name] = view.names;
  const id = view.names.join("/");
  const device = view.page === "device" && state.devices.find((its) => idOf(its) === id);
  const configuration = view.page === "configuration" &&
    state.configurations.find((its) => its.namespace === namespace && its.configuration === name);
  if (device) ask(id, JSON.stringify(device));
  const its = asked.id === id ? asked : { failure: "" };
  const changes = state.changes.filter((change) => isAbout(change.text, name));
  const now = Date.now();
  const made = device ? devicePage(back, device, its.details, its.failure, changes, now)
    : configuration ? configurationPage(back, configuration) : gonePage(back, name);
  const root = byId("device");
  const fresh = element("article", {}, ...made);
  if (root.dataset.of === id && root.innerHTML === fresh.innerHTML) return;
  const key = root.contains(document.activeElement) ? document.activeElement.dataset.key : "";
  root.replaceChildren(...made);
  const isOpened = root.dataset.of !== id;
  root.dataset.of = id;
  const focused = [...root.querySelectorAll("[data-key]")].find((part) => part.dataset.key === (isOpened ? "back" : key));
  if (isOpened) main.scrollTop = 0;
  focused?.focus({ preventScroll: true });
}

async function ask(id, of) {
  const since = Date.now() - asked.at;
  const isDue = asked.id !== id || since > ASK_LATEST || (asked.of !== of && since > ASK_SOONEST);
  if (!isDue) return;
  asked = { ...(asked.id === id ? asked : { details: undefined, failure: "" }), id, of, at: Date.now() };
  let answer;
  try {
    const response = await fetch(`/devices/${id.split("/").map(encodeURIComponent).join("/")}`);
    answer = response.ok ? { details: await response.json(), failure: "" } : { failure: `The server says: ${(await response.text()).trim()}` };
  } catch {
    answer = { failure: "The server does not answer." };
  }
  if (asked.id !== id) return;
  asked = { ...asked, ...answer };
  plan();
}

function showPointed(device) {
  pointed = device ? `${device.device}: ${stateOf(device)}, ${nodesOf(device).map((node) => node.name).join(", ")}` : "";
  drawLatest();
}

function openRow(row) {
  const names = row.kind === "device" ? [row.device.namespace, row.device.instance] : [row.its.namespace, row.its.configuration];
  go({ ...view, page: row.kind, names });
}

function go(to) {
  location.hash = addressOf(to);
}

// Filters change the address and make no entry in the history.
function change(to) {
  view = { ...view, ...to };
  history.replaceState(null, "", addressOf(view));
  main.scrollTop = 0;
  plan();
}

function sortBy(column) {
  const isSame = view.sort === column;
  change({ sort: isSame && view.down ? "" : column, down: isSame && !view.down });
}

function orderBy(chosen) {
  change(chosen === REVERSE ? { down: !view.down } : { sort: chosen, down: false });
}

function toggleProblems() {
  const to = { ...last, ...view, page: last.page === "changes" ? "list" : last.page, names: [], state: view.state === PROBLEM ? "" : PROBLEM };
  if (view.names.length || view.page === "changes") go(to);
  else change(to);
}

function focusContent() {
  if (view.page === "list") list.focus();
  else if (view.page === "map") map.focus();
  else main.focus();
}

function onAddress() {
  if (VIEWS.includes(view.page)) scrolls[view.page] = main.scrollTop;
  const before = view;
  view = readAddress(location.hash);
  if (!view.names.length) last = view;
  if (!view.names.length) byId("device").dataset.of = "";
  draw();
  if (!VIEWS.includes(view.page)) return;
  main.scrollTop = scrolls[view.page];
  list.draw();
  if (before.names.length || before.page !== view.page) focusContent();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const search = byId("q");
  const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
  if (event.key === "Escape") {
    if (view.names.length) go(last);
    else if (isFiltered()) {
      search.value = "";
      change({ q: "", node: "", configuration: "", state: "" });
    } else focusContent();
    if (event.target === search) focusContent();
  } else if (event.target === search && (event.key === "ArrowDown" || event.key === "Enter")) {
    event.preventDefault();
    draw();
    focusContent();
  } else if (isTyping) {
    return;
  } else if (event.key === "/") {
    event.preventDefault();
    if (view.names.length) go(last);
    search.focus();
    search.select();
  } else if (event.key === "p") toggleProblems();
  else if (event.key === "ArrowDown" && (event.target === document.body || event.target === main)) focusContent();
}

function drawError() {
  const lost = lostAt && `The server does not answer since ${lostAt.toISOString().slice(11, 19)} UTC. What is shown is older; the page tries again and again.`;
  const error = lost || state?.error;
  byId("error").hidden = !error;
  setText(byId("error"), error ?? "");
  byId("notes").hidden = !state?.notes?.length;
  setText(byId("notes"), (state?.notes ?? []).join(" "));
  const isLive = state && !lost && !state.stale;
  setText(byId("alive"), isLive ? "Live" : error ? "Not live" : "");
  byId("alive").className = isLive ? "good" : "bad";
}

function useTheme(theme) {
  document.documentElement.style.colorScheme = theme;
  byId("theme").dataset.theme = theme;
  const name = { "light dark": "Auto", light: "Light", dark: "Dark" }[theme];
  byId("theme").lastElementChild.textContent = name;
  byId("theme").title = `Theme: ${name}`;
  byId("theme").setAttribute("aria-label", byId("theme").title);
}

function stored(theme) {
  // A browser can forbid to store anything.
  try {
    if (theme) localStorage.setItem("theme", theme);
    return localStorage.getItem("theme");
  } catch {
    return theme;
  }
}

byId("theme").addEventListener("click", () => {
  const theme = THEMES[(THEMES.indexOf(byId("theme").dataset.theme) + 1) % THEMES.length];
  stored(theme);
  useTheme(theme);
});
useTheme(THEMES.includes(stored()) ? stored() : THEMES[0]);

main.addEventListener("scroll", () => list.draw(), { passive: true });
addEventListener("resize", plan);
addEventListener("hashchange", onAddress);
addEventListener("keydown", onKey);
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("q").addEventListener("input", () => change({ q: byId("q").value }));
byId("sort").addEventListener("change", () => orderBy(byId("sort").value));
for (const name of ["node", "configuration", "state"]) byId(name).addEventListener("change", () => change({ [name]: byId(name).value }));
byId("clear").addEventListener("click", () => {
  byId("q").value = "";
  change({ q: "", node: "", configuration: "", state: "" });
  focusContent();
});
if (!view.names.length) last = view;
byId("q").value = view.q;
// The ages on a device's page, and what it asks again.
setInterval(() => view.names.length && !document.hidden && plan(), 1000);
setInterval(() => view.page === "list" && !document.hidden && plan(), AGES);
drawViews();
drawError();

connect({
  open: () => new EventSource("/events"),
  clock: { start: (act, after) => setTimeout(act, after), stop: (timer) => clearTimeout(timer) },
  take(its) {
    state = its;
    plan();
  },
  tell(isThere) {
    lostAt = isThere ? undefined : new Date();
    drawError();
  },
});
