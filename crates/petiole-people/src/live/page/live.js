// Keeps the connection to the server: it knows no document, and tests/web/model_tests.js tests it.

// The server says every 10 s that it is there. After so long without a word a connection is dead, whatever the browser thinks.
export const SILENCE = 30_000;
// A browser that connects again within this time has lost nothing.
export const GRACE = 3000;
// A browser gives up after an answer that is no stream, such as that of a proxy without its server.
export const RETRY = 3000;

// `open` makes an EventSource. `take` gets each state, and `tell` whether the server answers: it is called at each change.
// `clock` has the timers.
export function connect({ open, take, tell, clock }) {
  let source;
  let isThere;
  const timers = {};

  function heard() {
    stop("lost");
    listen();
    say(true);
  }

  function listen() {
    start("silence", SILENCE, () => {
      lose();
      again();
    });
  }

  function start(name, after, act) {
    stop(name);
    timers[name] = clock.start(() => {
      timers[name] = undefined;
      act();
    }, after);
  }

  function stop(name) {
    if (timers[name] !== undefined) clock.stop(timers[name]);
    timers[name] = undefined;
  }

  function say(now) {
    if (isThere !== now) tell(now);
    isThere = now;
  }

  const lose = () => say(false);

  function again() {
    source?.close();
    source = open();
    listen();
    source.addEventListener("message", (event) => {
      heard();
      take(JSON.parse(event.data));
    });
    source.addEventListener("alive", heard);
    source.addEventListener("error", () => {
      if (timers.lost === undefined) start("lost", GRACE, lose);
      if (source.readyState === 2) start("again", RETRY, again);
    });
  }

  again();
}
