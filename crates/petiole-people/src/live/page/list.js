// Draws the list. Only the rows that can be seen have elements, and those are used again: 5,000 devices cost what 30 do.
import { element, setClass, setText, withCode } from "./dom.js";
import { moved, offsetsOf, scrolledTo, visible } from "./layout.js";
import { agoOf, areBrokersBad, brokersOf, COLUMN_NAMES, COLUMNS, configurationOf, hrefOf, idOf, nodesOf, shortName, stateOf, userOf } from "./model.js";

// A tall row has a message.
const HEIGHTS = {
  wide: { heading: 40, device: 50, tall: 50 },
  narrow: { heading: 38, device: 86, tall: 104 },
};
const narrow = matchMedia("(max-width: 700px)");

// `open` is called with the row that was chosen, and `sort` with the column.
export function makeList({ root, scroller, open, sort }) {
  let rows = [];
  let offsets = offsetsOf([], HEIGHTS.wide);
  let selected = "";
  const drawn = new Map();
  const spare = { heading: [], configuration: [], device: [] };
  const head = element("div", { class: "head", role: "row" });
  const space = element("div", { class: "space", role: "rowgroup" });
  const buttons = new Map(COLUMNS.map((column) => {
    const button = element("button", { type: "button" }, COLUMN_NAMES[column]);
    button.addEventListener("click", () => sort(column));
    head.append(element("div", { class: column, role: "columnheader" }, button));
    return [column, button];
  }));
  root.append(head, space);
  for (const [key, value] of Object.entries({ role: "grid", tabindex: "0", "aria-label": "Devices" })) root.setAttribute(key, value);

  const indexOf = (id) => (id ? rows.findIndex((row) => row.id === id) : -1);
  const headHeight = () => (narrow.matches ? 0 : head.offsetHeight);

  function show(newRows, view) {
    rows = newRows;
    head.hidden = !rows.length;
    offsets = offsetsOf(rows, narrow.matches ? HEIGHTS.narrow : HEIGHTS.wide);
    space.style.height = `${offsets[rows.length]}px`;
    root.setAttribute("aria-rowcount", String(rows.length + 1));
    for (const [column, button] of buttons) {
      const order = view.sort !== column ? "none" : view.down ? "descending" : "ascending";
      button.parentElement.setAttribute("aria-sort", order);
    }
    for (const [index, its] of drawn) release(index, its);
    draw();
  }

  function release(index, its) {
    drawn.delete(index);
    its.root.removeAttribute("id");
    spare[its.kind].push(its);
  }

  function draw() {
    if (root.hidden) return;
    const { first, end } = visible(offsets, scroller.scrollTop, scroller.clientHeight);
    for (const [index, its] of drawn) if (index < first || index >= end) release(index, its);
    for (let index = first; index < end; index += 1) {
      const row = rows[index];
      let its = drawn.get(index);
      if (!its) {
        its = spare[row.kind].pop() ?? make(row.kind);
        drawn.set(index, its);
        its.fill(row);
        its.root.id = `row-${index}`;
        its.root.dataset.id = row.id;
        its.root.setAttribute("aria-rowindex", String(index + 2));
        its.root.style.transform = `translateY(${offsets[index]}px)`;
        its.root.hidden = false;
      }
      its.root.classList.toggle("selected", row.id === selected);
    }
    for (const all of Object.values(spare)) for (const its of all) its.root.hidden = true;
    const index = indexOf(selected);
    if (index >= first && index < end) root.setAttribute("aria-activedescendant", `row-${index}`);
    else root.removeAttribute("aria-activedescendant");
  }

  function make(kind) {
    const its = MAKERS[kind]();
    its.kind = kind;
    space.append(its.root);
    return its;
  }

  function select(index) {
    if (!rows[index]) return;
    selected = rows[index].id;
    // The first row shows its heading, too.
    const above = index === 1 && rows[0].kind === "heading" ? 0 : index;
    const top = scrolledTo(offsets, above, scroller.scrollTop, scroller.clientHeight, headHeight());
    if (top !== scroller.scrollTop) scroller.scrollTop = top;
    draw();
  }

  root.addEventListener("keydown", (event) => {
    // Enter on the head of a column sorts by it.
    if (event.target !== root || event.ctrlKey || event.metaKey || event.altKey) return;
    const from = indexOf(selected);
    if (event.key === "Enter" && from >= 0) {
      event.preventDefault();
      open(rows[from]);
    } else if (["ArrowDown", "ArrowUp", "PageDown", "PageUp", "Home", "End", "j", "k"].includes(event.key)) {
      event.preventDefault();
      select(moved(rows, from, event.key, Math.floor(scroller.clientHeight / HEIGHTS.wide.device) - 2));
    }
  });
  space.addEventListener("click", (event) => {
    const row = rows[indexOf(event.target.closest("[data-id]")?.dataset.id)];
    const opensElsewhere = event.ctrlKey || event.metaKey || event.shiftKey;
    if (!row || row.kind === "heading" || opensElsewhere || String(getSelection())) return;
    event.preventDefault();
    selected = row.id;
    open(row);
  });

  return {
    show,
    draw,
    // The keys go to the list, and the first row is selected if none is.
    focus() {
      root.focus({ preventScroll: true });
      const index = indexOf(selected);
      select(index >= 0 ? index : moved(rows, -1, "Home", 1));
    },
  };
}

const cell = (name, ...children) => element("div", { class: name, role: "gridcell" }, ...children);

// The list has one line for a message; the page of the device has all of it.
function setMessage(its, text) {
  if (its.title === text) return;
  its.title = text;
  its.replaceChildren(...withCode(text));
}

const MAKERS = {
  heading() {
    const [text, count] = [element("b"), element("span")];
    const root = element("div", { class: "heading", role: "row" }, cell("", text, " ", count));
    return {
      root,
      fill(row) {
        setText(text, row.text);
        setText(count, row.count);
        setClass(root, row.isBad ? "heading bad" : "heading");
      },
    };
  },

  configuration() {
    const [name, reason, message] = [element("a", { tabindex: "-1" }), element("b"), element("span")];
    const root = element("div", { class: "row troubled", role: "row" },
      cell("device", element("span", { class: "mark bad", "aria-hidden": "true" }, "!"), name, element("small", {}, "Configuration")),
      cell("state bad", reason), cell("message", message));
    return {
      root,
      fill({ its }) {
        setText(name, shortName(configurationOf(its)));
        name.href = hrefOf("configuration", its.namespace, its.configuration);
        setText(reason, its.reason);
        setMessage(message, its.message);
      },
    };
  },

  device() {
    const mark = element("span", { class: "mark", "aria-hidden": "true" });
    const [name, instance] = [element("a", { tabindex: "-1" }), element("small")];
    const cells = Object.fromEntries(COLUMNS.map((column) => [column, cell(column)]));
    const [slots, bar] = [element("span"), element("i", { class: "bar", "aria-hidden": "true" })];
    const [state, since] = [element("b"), element("small")];
    const message = element("span");
    cells.device.append(mark, name, instance);
    cells.state.append(state, " ", since);
    cells.slots.append(slots, " ", bar);
    const root = element("div", { class: "row", role: "row" }, ...Object.values(cells), cell("message", message));
    return {
      root,
      fill({ device }) {
        setClass(mark, device.problem ? "mark bad" : "mark good");
        setText(mark, device.problem ? "!" : "");
        setText(name, device.device);
        name.title = device.device;
        name.href = hrefOf("device", device.namespace, device.instance);
        setText(instance, shortName(idOf(device)));
        root.classList.toggle("troubled", Boolean(device.message));
        setMessage(message, device.message ?? "");
        setText(state, stateOf(device));
        cells.state.title = stateOf(device);
        setText(since, device.problem && device.since ? agoOf(Date.parse(device.since), Date.now()) : "");
        setClass(cells.state, device.problem ? "state bad" : "state good");
        setText(slots, `${device.used.length}/${device.capacity}`);
        bar.style.setProperty("--share", String(device.capacity ? device.used.length / device.capacity : 0));
        const users = device.used.map(userOf);
        setText(cells.used, users.map(shortName).join(", "));
        setClass(cells.used, users.length ? "used" : "used none");
        cells.used.title = users.join("\n");
        setText(cells.nodes, nodesOf(device).map((node) => (node.healthy ? node.name : `${node.name} ✕`)).join(", "));
        cells.nodes.title = nodesOf(device).map((node) => `${node.name}${node.healthy ? "" : " does not see it"}`).join("\n");
        setText(cells.brokers, brokersOf(device));
        setClass(cells.brokers, areBrokersBad(device) ? "brokers bad" : "brokers");
        setText(cells.address, device.address ?? "");
        setText(cells.configuration, shortName(configurationOf(device)));
      },
    };
  },
};
