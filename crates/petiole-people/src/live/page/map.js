// Draws the map: a card for each Configuration, in it the nodes, and a tile for each device. No lines, so nothing is hidden
// under them. Tiles are filled as far as their slots are in use.
import { element, setClass, setText, withCode } from "./dom.js";
import { neighbour, tileSize } from "./layout.js";
import { areBrokersBad, brokersOf, groupsOf, hrefOf, idOf, plural, shortName, shortPlace, stateOf, userOf } from "./model.js";

// A place with more tiles than this has the whole width.
const PLACE_MAX = 30;
// Cards with no more devices than this are beside each other.
const CARD_MAX = 3;


// `point` is called with the device that has the pointer or the focus, or without one.
export function makeMap({ root, point }) {
  const tiles = new Map();
  let drawn = "";
  let devices = new Map();

  function show(chosen, configurations) {
    devices = new Map(chosen.map((device) => [idOf(device), device]));
    const size = tileSize(chosen.length);
    const groups = groupsOf(chosen, configurations);
    const shape = `${size}|${groups.map(shapeOf).join("|")}`;
    if (shape !== drawn) {
      const focused = root.contains(document.activeElement) ? document.activeElement.dataset.id : "";
      drawn = shape;
      tiles.clear();
      root.className = groups.every((group) => group.count <= CARD_MAX) ? "large few" : size;
      root.replaceChildren(legend(), ...groups.map((group) => card(group, size)));
      reach(tiles.get(focused) ?? tiles.values().next().value, Boolean(focused));
    }
    for (const [id, device] of devices) fill(tiles.get(id), device, size);
  }

  // What a drawn group depends on, besides the states of its devices.
  const shapeOf = (group) =>
    [group.name, group.problems, group.its?.reason, group.its?.message, ...group.places.flatMap((place) => [place.name, ...place.devices.map(idOf)])].join();

  function card(group, size) {
    const { its } = group;
    const notReady = its && element("a", { class: "count bad", href: hrefOf("configuration", its.namespace, its.configuration) }, its.reason);
    const message = its && element("p", { class: "message", title: its.message }, ...withCode(its.message));
    const bad = group.problems - (group.its ? 1 : 0);
    const problems = bad && element("span", { class: "count bad" }, plural(bad, "problem"));
    const places = group.places.map((place) => element("section", { class: place.devices.length > PLACE_MAX && "whole" },
      element("h3", { title: place.name }, shortPlace(place.name)),
      element("div", { class: "tiles" }, ...place.devices.map((device) => tile(device, size)))));
    return element("section", { class: "card" },
      element("h2", {}, element("span", {}, shortName(group.name)), element("span", { class: "count" }, plural(group.count, "device")), notReady, problems),
      message, places.length > 0 && element("div", { class: "places" }, ...places));
  }

  function tile(device, size) {
    const made = element("a", { class: "tile", href: hrefOf("device", device.namespace, device.instance), tabindex: "-1", "data-id": idOf(device) });
    if (size !== "small") made.append(element("b", {}, device.device));
    if (size === "large") made.append(element("span", { class: "state" }), element("small"));
    tiles.set(idOf(device), made);
    return made;
  }

  function fill(made, device, size) {
    const brokers = device.brokers ? `, brokers ${brokersOf(device)}` : "";
    const text = `${device.device}: ${stateOf(device)}, slots ${device.used.length}/${device.capacity}${brokers}`;
    if (made.title !== text) {
      made.title = text;
      made.setAttribute("aria-label", text);
    }
    setClass(made, device.problem ? "tile bad" : device.used.length ? "tile used" : "tile");
    made.style.setProperty("--share", String(device.capacity ? device.used.length / device.capacity : 0));
    if (size !== "large") return;
    const slots = `${device.used.length}/${device.capacity} slots in use`;
    setText(made.children[1], device.problem ?? slots);
    const second = [device.problem && slots, device.brokers && `${brokersOf(device)} brokers ready`].filter(Boolean);
    setText(made.children[2], second.join(", ") || shortName(device.used.map(userOf).join(", ")) || "free");
    setClass(made.children[2], areBrokersBad(device) ? "bad" : "");
  }

  // One tile at a time is reached by Tab; the arrows move on from it.
  function reach(made, hasFocus) {
    for (const old of root.querySelectorAll('[tabindex="0"]')) old.tabIndex = -1;
    if (!made) return;
    made.tabIndex = 0;
    if (hasFocus) made.focus();
  }

  root.addEventListener("keydown", (event) => {
    const all = [...tiles.values()];
    const from = all.indexOf(document.activeElement);
    if (from < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const boxes = () => all.map((its) => ({ x: its.offsetLeft + its.offsetWidth / 2, y: its.offsetTop + its.offsetHeight / 2 }));
    const to = {
      ArrowRight: () => Math.min(from + 1, all.length - 1),
      ArrowLeft: () => Math.max(from - 1, 0),
      ArrowDown: () => neighbour(boxes(), from, 1),
      ArrowUp: () => neighbour(boxes(), from, -1),
      Home: () => 0,
      End: () => all.length - 1,
    }[event.key];
    if (!to) return;
    event.preventDefault();
    reach(all[to()], true);
  });
  const pointed = (event) => point(devices.get(event.target.closest?.(".tile")?.dataset.id));
  root.addEventListener("focusin", pointed);
  root.addEventListener("pointerover", pointed);
  root.addEventListener("pointerleave", () => point());

  return {
    show,
    focus() {
      root.querySelector('[tabindex="0"]')?.focus();
    },
  };
}

function legend() {
  const sample = (name, share, text) => {
    const tile = element("i", { class: `tile ${name}` });
    tile.style.setProperty("--share", share);
    return element("span", {}, tile, text);
  };
  return element("p", { class: "legend" },
    sample("bad", "0", "a problem"), sample("", "0", "free"), sample("used", "0.5", "some slots used"), sample("used", "1", "all used"));
}
