// Decides where things are drawn. Pure: it knows no document, and tests/web/model_tests.js tests it.

// Rows beyond the edges, so that a fast scroll shows no gap before the next frame.
const BEYOND = 6;
// Up to so many devices of the map get their name and state, and up to so many their name alone.
const LARGE_MAX = 60;
const MEDIUM_MAX = 300;

// The offset of each row, and at the end the height of all.
export function offsetsOf(rows, heights) {
  const offsets = new Float64Array(rows.length + 1);
  for (let n = 0; n < rows.length; n += 1) offsets[n + 1] = offsets[n] + heights[rows[n].isTall ? "tall" : rows[n].kind];
  return offsets;
}

// The last row that begins at this offset or before.
export function rowAt(offsets, offset) {
  let [low, high] = [0, Math.max(0, offsets.length - 2)];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle] <= offset) low = middle;
    else high = middle - 1;
  }
  return low;
}

// The rows from `first` to before `end` are drawn.
export function visible(offsets, top, height) {
  const count = offsets.length - 1;
  if (!count) return { first: 0, end: 0 };
  return {
    first: Math.max(0, rowAt(offsets, top) - BEYOND),
    end: Math.min(count, rowAt(offsets, top + height) + 1 + BEYOND),
  };
}

// The row to which a key moves. Headings cannot be selected.
export function moved(rows, from, key, page) {
  const selectable = (n) => rows[n] && rows[n].kind !== "heading";
  const last = rows.length - 1;
  const [start, step] = {
    ArrowDown: [from + 1, 1], j: [from + 1, 1],
    ArrowUp: [from - 1, -1], k: [from - 1, -1],
    PageDown: [Math.min(from + page, last), -1],
    PageUp: [Math.max(from - page, 0), 1],
    Home: [0, 1],
    End: [last, -1],
  }[key] ?? [from, 1];
  for (let n = start; n >= 0 && n <= last; n += step) if (selectable(n)) return n;
  return selectable(from) ? from : -1;
}

// Where to scroll so that a row can be seen below the head of the table, or `top` if it can.
export function scrolledTo(offsets, row, top, height, head) {
  if (offsets[row] < top) return offsets[row];
  return Math.max(top, offsets[row + 1] - height + head);
}

export function tileSize(count) {
  if (count <= LARGE_MAX) return "large";
  return count <= MEDIUM_MAX ? "medium" : "small";
}

// The tile above or below, by the middle of each: `boxes` are in reading order.
export function neighbour(boxes, from, direction) {
  const { x, y } = boxes[from];
  const rows = boxes.map((box, n) => ({ ...box, n })).filter((box) => direction * (box.y - y) > 2);
  if (!rows.length) return from;
  const nearest = rows.reduce((a, b) => (Math.abs(b.y - y) < Math.abs(a.y - y) ? b : a)).y;
  const row = rows.filter((box) => Math.abs(box.y - nearest) <= 2);
  return row.reduce((a, b) => (Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a)).n;
}
