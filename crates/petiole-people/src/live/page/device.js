// Draws the page of one device, and that of a Configuration that is not ready.
import { element, withCode } from "./dom.js";
import { agoOf, areBrokersBad, brokersOf, configurationOf, nodesOf, plural, stateOf } from "./model.js";

const time = (at) => (at ? `${at.slice(0, 10)} ${at.slice(11, 19)}` : "");

// A command, with a button where the browser lets a page copy.
function command(text) {
  const code = element("code", {}, text);
  if (!navigator.clipboard) return element("li", {}, code);
  const button = element("button", { type: "button", "data-key": `copy ${text}`, "aria-label": `Copy ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
  });
  return element("li", {}, code, button);
}

const commands = (texts) => element("ul", { class: "commands" }, ...texts.map(command));

function section(title, ...children) {
  return element("section", { class: "card" }, element("h2", {}, title), ...children);
}

function table(heads, rows) {
  const cells = (name, texts) => element("tr", {}, ...texts.map((text) => element(name, {}, ...[text].flat())));
  return element("div", { class: "wide" }, element("table", {},
    element("thead", {}, cells("th", heads)), element("tbody", {}, ...rows.map((row) => cells("td", row)))));
}

function facts(pairs) {
  return element("dl", {}, ...pairs.filter(([, value]) => value).map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, ...[value].flat()))));
}

const pill = (text, isBad) => element("span", { class: isBad ? "pill bad" : "pill good" }, text);

function title(back, name, ...pills) {
  return element("div", { class: "top" },
    element("a", { class: "back", href: back, "data-key": "back" }, "← Back"),
    element("h1", {}, name), ...pills);
}

const notice = (text) => element("p", { class: "none" }, text);

export function devicePage(back, device, details, failure, changes, now) {
  return [
    title(back, device.device, pill(stateOf(device), Boolean(device.problem)),
      device.brokers && pill(`${brokersOf(device)} brokers ready`, areBrokersBad(device))),
    element("div", { class: "columns" },
      element("div", {}, whyOf(device, details, failure), slotsOf(device), historyOf(details, changes), conditionsOf(details)),
      element("div", {}, factsOf(device, details, now), propertiesOf(details), brokerPodsOf(details), commandsOf(details))),
  ];
}

function whyOf(device, details, failure) {
  if (failure) return section("Why", notice(failure));
  if (!details) return section("Why", notice("Asking …"));
  const said = details.why;
  const text = said?.text ?? device.message;
  const next = said?.next.length ? [element("h3", {}, "Next"), commands(said.next)] : [];
  const unread = details.unread.map((its) => notice(`(incomplete: ${its})`));
  const isBad = said ? !said.fine : device.problem;
  const answer = element("p", { class: isBad ? "answer bad" : "answer good" }, ...withCode(text || stateOf(device)));
  return section("Why", answer, ...next, ...unread);
}

function factsOf(device, details, now) {
  const only = new URLSearchParams({ configuration: configurationOf(device) });
  const nodes = nodesOf(device).flatMap((node, n) => [
    n ? ", " : "", element("span", { class: node.healthy ? "" : "bad" }, node.healthy ? node.name : `${node.name} does not see it`)]);
  const since = details?.created && `${agoOf(Date.parse(details.created), now)} ago, ${time(details.created)} UTC`;
  return section("Device", facts([
    ["Instance", `${device.namespace}/${device.instance}`],
    ["Configuration", element("a", { href: `#/list?${only}`, "data-key": "configuration" }, device.configuration)],
    ["Resource", device.resource],
    ["Address", device.address],
    ["In containers", device.containerPath],
    ["Nodes", nodes.length ? nodes : "none"],
    ["Found", since],
  ]));
}

function slotsOf(device) {
  const free = device.capacity - device.used.length;
  const named = (pods) => (pods.length > 1 ? `one of ${pods.join(", ")}` : pods[0]);
  const holder = (used) => (used.pods.length ? (used.certain ? "" : "perhaps ") + named(used.pods) : "not known");
  const rows = device.used.map((used) => [used.slot, used.node, holder(used)]);
  const shown = rows.length ? [table(["Slot", "Node", "Pod"], rows)] : [];
  return section(`Slots: ${device.used.length} of ${device.capacity} in use`, ...shown, notice(free > 0 ? `${plural(free, "slot")} free` : "No slot is free."));
}

function brokerPodsOf(details) {
  if (!details?.brokers.length) return "";
  const state = (its) => element("span", { class: its.ready ? "good" : "bad" }, its.ready ? "Ready" : its.state);
  return section("Brokers", table(["Pod", "Node", "State"], details.brokers.map((its) => [its.pod, its.node ?? "none", state(its)])));
}

function propertiesOf(details) {
  const pairs = Object.entries(details?.properties ?? {});
  if (!pairs.length) return "";
  return section("Properties", element("dl", { class: "properties" }, ...pairs.map(([name, value]) =>
    element("div", {}, element("dt", {}, element("code", {}, name)), element("dd", {}, element("code", {}, value))))));
}

function conditionsOf(details) {
  if (!details?.conditions.length) return "";
  const line = (its) => element("li", {},
    element("time", {}, time(its.lastTransitionTime)), element("b", {}, `${its.type}: ${its.status}`), element("span", {}, its.message || its.reason), element("small", {}, its.message && its.reason));
  return section("Conditions, with the time of their last change (UTC)", element("ol", { class: "history" }, ...details.conditions.map(line)));
}

function historyOf(details, changes) {
  const events = (details?.events ?? []).map((its) => ({
    at: its.at, isBad: its.warning, text: its.message, reason: its.reason, count: its.count > 1 ? `${its.count} times` : "",
  }));
  const seen = changes.map((its) => ({ at: its.at, text: its.text, reason: "seen here", count: "" }));
  const all = [...events, ...seen].sort((a, b) => ((a.at ?? "") < (b.at ?? "") ? 1 : -1));
  if (!all.length) return section("History", notice("No Event of the last hour, and no change since this page was opened on the server."));
  const lines = all.map((its) => element("li", {},
    element("time", {}, time(its.at)), element("b", { class: its.isBad ? "bad" : "" }, its.reason), element("span", {}, its.text), element("small", {}, its.count)));
  return section("History, newest first (UTC)", element("ol", { class: "history" }, ...lines));
}

function commandsOf(details) {
  return details ? section("Commands", commands(details.commands)) : "";
}

export function configurationPage(back, its) {
  const { namespace, configuration } = its;
  const only = new URLSearchParams({ configuration: configurationOf(its) });
  return [
    title(back, configuration, pill(its.reason, true)),
    element("div", { class: "columns" },
      element("div", {}, section("Why", element("p", { class: "answer bad" }, ...withCode(its.message || its.reason)))),
      element("div", {},
        section("Configuration", facts([["Name", `${namespace}/${configuration}`], ["Devices", element("a", { href: `#/list?${only}`, "data-key": "devices" }, "show them")]])),
        section("Commands", commands([
          `kubectl petiole why -n ${namespace} configuration/${configuration}`,
          `kubectl -n ${namespace} describe configuration ${configuration}`,
          `kubectl -n ${namespace} edit configuration ${configuration}`,
        ])))),
  ];
}

export function gonePage(back, name) {
  return [
    title(back, name, pill("Gone", true)),
    section("Why", element("p", { class: "answer bad" }, "It has no problem any more, or its object was deleted.")),
  ];
}
