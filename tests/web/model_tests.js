// Tests what the page decides without a document: model.js, layout.js and live.js. `run` imports it in the browser.
import { moved, neighbour, offsetsOf, rowAt, scrolledTo, tileSize, visible } from "/layout.js";
import { connect, GRACE, RETRY, SILENCE } from "/live.js";
import { addressOf, agoOf, choicesOf, chosen, groupsOf, numbersOf, readAddress, rowsOf, shortPlace, sorted } from "/model.js";

const device = (device, more = {}) => ({
  namespace: "default", instance: `cams-${device.replace(" ", "-")}`, device, configuration: "cams", resource: "akri.sh/cams",
  nodes: [{ name: "node-1", healthy: true }], health: "Healthy", capacity: 2, used: [], ...more,
});
const used = (node, ...pods) => ({ slot: "cams-0", node, pods });
const view = (hash = "#/list") => readAddress(hash);
const names = (devices) => devices.map((its) => its.device).join();

// A clock and a server that do what a test says. `said` is what the page was told: states, and whether the server answers.
function outside() {
  const its = { said: [], sources: [], timers: new Map(), now: 0 };
  const open = () => {
    const source = { readyState: 1, on: {}, addEventListener(name, act) { this.on[name] = act; }, close() { this.readyState = 2; } };
    its.sources.push(source);
    return source;
  };
  const clock = {
    start(act, after) {
      const timer = {};
      its.timers.set(timer, { at: its.now + after, act });
      return timer;
    },
    stop: (timer) => its.timers.delete(timer),
  };
  its.pass = (time) => {
    its.now += time;
    for (const [timer, { at, act }] of [...its.timers]) if (at <= its.now && its.timers.delete(timer)) act();
  };
  its.sends = (name, data = "") => its.sources.at(-1).on[name]({ data });
  connect({ open, clock, take: (state) => its.said.push(state), tell: (isThere) => its.said.push(isThere) });
  return its;
}

const tests = {
  "a connection that comes back soon is not missed"() {
    const its = outside();
    its.sends("message", "1");
    its.sends("error");
    its.pass(GRACE - 1);
    its.sends("message", "2");
    its.pass(GRACE);
    equal(its.said.join(), "true,1,2");
    equal(its.sources.length, 1);
  },
  "a server that is away is said once, and asked again for as long as the browser does not do it"() {
    const its = outside();
    its.sends("message", "1");
    for (let n = 1; n <= 5; n += 1) {
      its.sources.at(-1).readyState = 2;
      its.sends("error");
      its.pass(RETRY);
      equal(its.sources.length, n + 1);
    }
    its.sends("message", "2");
    equal(its.said.join(), "true,1,false,true,2");
    its.pass(SILENCE - 1);
    equal(its.sources.length, 6, "no timer is left of before");
  },
  "a server that says nothing at all is lost, and one that says that it is there is not"() {
    const its = outside();
    its.sends("message", "1");
    for (let n = 0; n < 3; n += 1) {
      its.pass(SILENCE - 1);
      its.sends("alive");
    }
    equal(its.said.join(), "true,1");
    its.pass(SILENCE);
    equal(its.said.join(), "true,1,false");
    equal(its.sources.map((source) => source.readyState).join(), "2,1");
    its.pass(SILENCE);
    equal(its.sources.length, 3, "a new connection without a word is lost, too");
  },

  "an address that was written is read as the same view"() {
    const hash = "#/device/default/cams-1?q=front+door&node=node-1&configuration=default%2Fcams&state=problem&sort=slots&down=";
    equal(addressOf(readAddress(hash)), hash);
    equal(addressOf(view("")), "#/list");
  },
  "an address that nobody wrote is the list"() {
    for (const hash of ["#/nothing", "#/device/one", "#/device/a/b/c", "#/%E0%A4%A", "#/list?sort=nothing"]) {
      equal(view(hash).page, "list");
      equal(view(hash).sort, "");
    }
  },
  "every word of a search is in the name, the Pod, the node, or the address"() {
    const devices = [device("Front door", { used: [used("node-2", "shop/web")], address: "10.0.0.1:554" }), device("Back door")];
    for (const [q, expected] of [["DOOR", "Front door,Back door"], ["front door", "Front door"], ["shop/web", "Front door"], ["node-2", "Front door"], ["10.0.0.1", "Front door"], ["door roof", ""]]) {
      equal(names(chosen(devices, { ...view(), q })), expected, q);
    }
  },
  "the filters by node, Configuration and state add up"() {
    const devices = [
      device("a", { problem: "DeviceGone", health: "DeviceGone" }), device("b", { used: [used("node-1"), used("node-1")] }),
      device("c", { configuration: "printers", nodes: [{ name: "node-2", healthy: true }] }),
    ];
    for (const [filter, expected] of [
      [{ node: "node-2" }, "c"], [{ configuration: "default/cams" }, "a,b"], [{ state: "problem" }, "a"], [{ state: "DeviceGone" }, "a"],
      [{ state: "healthy" }, "b,c"], [{ state: "in use" }, "b"], [{ state: "free" }, "a,c"], [{ state: "healthy", node: "node-1" }, "b"],
    ]) equal(names(chosen(devices, { ...view(), ...filter })), expected, JSON.stringify(filter));
  },
  "numbers in names are in the order of numbers"() {
    const devices = ["Printer 10", "Printer 2", "printer 1"].map((name) => device(name));
    equal(names(sorted(devices, "device", false)), "printer 1,Printer 2,Printer 10");
    equal(names(sorted(devices, "device", true)), "Printer 10,Printer 2,printer 1");
  },
  "problems are first in every order"() {
    const devices = [device("a"), device("b", { problem: "BrokerCrashes" }), device("c")];
    const its = { namespace: "default", configuration: "scanners", reason: "BadDiscoveryDetails", message: "" };
    for (const sort of ["", "device", "slots"]) for (const down of [false, true]) {
      const rows = rowsOf({ devices, configurations: [its] }, { ...view(), sort, down });
      equal(rows.slice(0, 4).map((row) => row.text ?? row.its?.configuration ?? row.device.device).join(), "Problems,scanners,b,No problem");
    }
    equal(rowsOf({ devices: [device("a")], configurations: [] }, view()).length, 1, "no heading without a problem");
  },
  "a Configuration is not on a node, and is left out of what is on one"() {
    const state = { devices: [], configurations: [{ namespace: "default", configuration: "scanners", reason: "BadName", message: "" }] };
    equal(rowsOf(state, { ...view(), node: "node-1" }).length, 0);
    equal(rowsOf(state, { ...view(), q: "badname" }).length, 2);
  },
  "the choices are counted, and a Configuration without devices is one"() {
    const state = { devices: [device("a"), device("b", { problem: "DeviceGone" })], configurations: [{ namespace: "x", configuration: "y" }] };
    equal(JSON.stringify(choicesOf(state)), '{"node":[["node-1",2]],"configuration":[["default/cams",2],["x/y",0]],"state":[["DeviceGone",1]]}');
  },
  "the numbers are of all devices"() {
    const state = { problems: 1, devices: [device("a", { used: [used("node-1")], brokers: { ready: 1, all: 2 } }), device("b")], configurations: [{}] };
    equal(JSON.stringify(numbersOf(state)), '{"problems":2,"devices":2,"used":1,"slots":4,"ready":1,"brokers":2}');
  },
  "the map has a card for each Configuration, the troubled first, and in it the nodes"() {
    const both = [{ name: "node-1", healthy: true }, { name: "node-2", healthy: true }];
    const groups = groupsOf([device("a"), device("b", { nodes: both }), device("c", { configuration: "printers", problem: "DeviceGone" })],
      [{ namespace: "default", configuration: "scanners", reason: "BadName" }]);
    equal(groups.map((group) => `${group.name} ${group.places.map((place) => `${place.name}: ${names(place.devices)}`).join("; ")}`).join(" | "),
      "default/printers node-1: c | default/scanners  | default/cams node-1: a; node-1, node-2: b");
    equal(shortPlace("a, b, c, d"), "a, b and 2 more");
    equal(shortPlace(""), "no node");
  },
  "only the rows that can be seen are drawn, and some beyond"() {
    const rows = Array.from({ length: 5000 }, (_, n) => ({ kind: n ? "device" : "heading" }));
    const offsets = offsetsOf(rows, { heading: 40, device: 50 });
    equal(offsets[5000], 40 + 4999 * 50);
    equal(rowAt(offsets, 0), 0);
    equal(rowAt(offsets, 40), 1);
    equal(rowAt(offsets, 1e9), 4999);
    const { first, end } = visible(offsets, 100000, 800);
    equal(first <= 1999 && first > 1990 && end >= 2016 && end < 2026, true, `${first} ${end}`);
    equal(JSON.stringify(visible(offsetsOf([], {}), 0, 800)), '{"first":0,"end":0}');
  },
  "the keys pass over headings and stop at the ends"() {
    const rows = ["heading", "device", "heading", "device", "device"].map((kind) => ({ kind }));
    for (const [from, key, expected] of [
      [-1, "ArrowDown", 1], [1, "ArrowDown", 3], [3, "ArrowUp", 1], [1, "ArrowUp", 1], [4, "ArrowDown", 4], [1, "End", 4], [4, "Home", 1],
      [1, "PageDown", 4], [4, "PageUp", 1], [1, "j", 3], [3, "k", 1],
    ]) equal(moved(rows, from, key, 20), expected, `${key} from ${from}`);
    equal(moved([], -1, "ArrowDown", 5), -1);
  },
  "a selected row is scrolled to only if it is not seen"() {
    const offsets = offsetsOf(Array.from({ length: 100 }, () => ({ kind: "device" })), { device: 50 });
    equal(scrolledTo(offsets, 5, 200, 400, 30), 200);
    equal(scrolledTo(offsets, 1, 200, 400, 30), 50);
    equal(scrolledTo(offsets, 20, 200, 400, 30), 21 * 50 - 400 + 30);
  },
  "tiles are smaller the more there are, and the arrows go to the nearest"() {
    equal([3, 100, 1000].map(tileSize).join(), "large,medium,small");
    const boxes = [{ x: 10, y: 10 }, { x: 30, y: 10 }, { x: 50, y: 10 }, { x: 12, y: 40 }, { x: 29, y: 41 }, { x: 10, y: 90 }];
    equal(neighbour(boxes, 1, 1), 4);
    equal(neighbour(boxes, 4, -1), 1);
    equal(neighbour(boxes, 2, 1), 4);
    equal(neighbour(boxes, 5, 1), 5);
  },
  "a time is said in a few words"() {
    for (const [seconds, expected] of [[5, "5 s"], [125, "2 min"], [7500, "2 h"], [90000, "1 day"], [-5, "0 s"]]) equal(agoOf(0, seconds * 1000), expected);
  },
};

function equal(is, expected, of = "") {
  if (is !== expected) throw new Error(`${of}: ${is} is not ${expected}`);
}

export function failures() {
  const found = [];
  for (const [name, test] of Object.entries(tests)) {
    try {
      test();
    } catch (error) {
      found.push(`${name}: ${error.message}`);
    }
  }
  return { count: Object.keys(tests).length, found };
}
