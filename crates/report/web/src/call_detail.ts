// The detail of a slow call: facts, the timeline of its parts, and the kernel stacks in which they slept or ran.

import { h, svg } from "./dom";
import { clock, count, moment, size, time } from "./format";
import type { CallRow, PartRow, Payload } from "./payload";
import { causeClass } from "./theme";

const BASIS = ["measured", "sampled", "inferred"];
const PARTS_AT_FIRST = 12;

export function detail(payload: Payload, row: CallRow, show: (from: number, to: number) => void): HTMLElement {
  return h(
    "div",
    { class: "call-detail" },
    facts(payload, row),
    timeline(payload, row),
    chain(payload, row),
    parts(payload, row),
    h(
      "p",
      { class: "actions" },
      h("button", { type: "button", click: () => show(row.t, row.t + row.ns / 1e9) }, "Show in the charts"),
    ),
  );
}

function facts(payload: Payload, row: CallRow): HTMLElement {
  const { calls } = payload;
  const list = h("dl", { class: "call-facts" });
  const add = (name: string, value: string | null) => {
    if (value) list.append(h("div", {}, h("dt", {}, name), h("dd", {}, value)));
  };
  const wall = clock(row.t, payload.wall_start_ms);
  add("began", `${moment(row.t)}${wall ? ` (${wall} UTC)` : ""}`);
  const so_far = row.still_under_way ? ", and had not returned when the recording ended" : "";
  add(row.still_under_way ? "has taken" : "took", `${time(row.ns)} (${count(row.ns)} ns)${so_far}`);
  add("failed", row.failed);
  add("due", row.late_ns === null ? null : `${time(row.late_ns)} before it began`);
  add("thread", `${calls.threads[row.thread] ?? ""} (tid ${row.tid})${row.neighbour ? ", a neighbour" : ""}`);
  add("file", row.file === null ? null : (calls.files[row.file] ?? null));
  add("bytes", row.bytes === null ? null : count(row.bytes));
  add("offset", row.offset_bytes === null ? null : `${count(row.offset_bytes)} (${size(row.offset_bytes)})`);
  add("after its return", row.after_exit_ns > 0 ? `${time(row.after_exit_ns)} more, on return to user space` : null);
  add("damaged", row.damaged ? "an event was lost: a segment may have the wrong cause, its length is right" : null);
  return list;
}

function timeline(payload: Payload, row: CallRow): HTMLElement {
  const total = Math.max(row.ns, 1);
  const rects = row.parts.map(([offset, ns, cause]) =>
    svg(
      "rect",
      {
        x: `${((100 * offset) / total).toFixed(4)}%`,
        width: `${((100 * ns) / total).toFixed(4)}%`,
        height: "26",
        class: causeClass(payload, cause),
      },
      svg("title", {}, `${payload.causes[cause]} ${time(ns)}, ${time(offset)} after the call began`),
    ),
  );
  const label = row.parts.map(([, ns, cause]) => `${payload.causes[cause]} ${time(ns)}`).slice(0, 20).join(", ");
  const bar = svg("svg", { class: "timeline", width: "100%", height: "26", role: "img", "aria-label": label }, ...rects);
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => h("span", {}, time(row.ns * share)));
  return h("div", { class: "timeline-box" }, bar, h("div", { class: "ticks", "aria-hidden": "true" }, ...ticks));
}

const LINK_KIND = ["thread", "device", "timer", "unknown"];

// The wait chain: the interval of each link within the call, deeper links indented.
function chain(payload: Payload, row: CallRow): HTMLElement | null {
  if (row.chain.length === 0) return null;
  const total = Math.max(row.ns, 1);
  const list = h("ol", { class: "chain" });
  for (const [depth, offset, ns, kind, text] of row.chain) {
    const from = Math.min(100, Math.max(0, (100 * offset) / total));
    const to = Math.min(100, Math.max(from, (100 * (offset + ns)) / total));
    const shown = { x: `${from.toFixed(3)}%`, width: `${Math.max(0.4, to - from).toFixed(3)}%`, height: "8" };
    const bar = svg("svg", { class: `link-bar ${LINK_KIND[kind] ?? "unknown"}`, width: "100%", height: "8", "aria-hidden": "true" },
      svg("rect", shown));
    list.append(h("li", { class: `depth-${Math.min(depth, 6)}` }, bar, h("span", {}, payload.calls.texts[text] ?? "")));
  }
  return h("div", {}, h("h4", {}, "Who it waited for"), list);
}

function parts(payload: Payload, row: CallRow): HTMLElement {
  const longest = [...row.parts].sort((a, b) => b[1] - a[1]);
  const list = h("ol", { class: "parts" });
  const fill = (most: number) => {
    const shown = new Set(longest.slice(0, most));
    list.replaceChildren(...row.parts.filter((part) => shown.has(part)).map((part) => item(payload, row, part)));
  };
  fill(PARTS_AT_FIRST);
  const box = h("div", {}, list);
  if (row.parts.length > PARTS_AT_FIRST) {
    const all = h(
      "button",
      { type: "button", click: () => (fill(row.parts.length), all.remove()) },
      `Show all ${count(row.parts.length)} segments`,
    );
    box.append(h("p", { class: "hint" }, `The ${PARTS_AT_FIRST} longest segments, in order of time. `, all));
  }
  if (row.parts_left_out > 0) {
    box.append(h("p", { class: "hint" }, `${count(row.parts_left_out)} shorter segments are not in this page.`));
  }
  return box;
}

function item(payload: Payload, row: CallRow, part: PartRow): HTMLElement {
  const [offset, ns, cause, basis, stack, merged] = part;
  const share = (100 * ns) / Math.max(row.ns, 1);
  const about = h(
    "span",
    { class: "part-about" },
    `+${time(offset)} · ${BASIS[basis] ?? ""}${merged > 1 ? ` · ${count(merged)} intervals` : ""}`,
  );
  const line = h(
    "div",
    { class: "part" },
    h("span", { class: `cause ${causeClass(payload, cause)}` }, payload.causes[cause] ?? ""),
    h("span", { class: "part-time" }, time(ns)),
    h("span", { class: "part-share" }, share < 0.1 ? "< 0.1 %" : `${share.toFixed(1)} %`),
    about,
  );
  const frames = payload.calls.stacks[stack]?.map((symbol) => payload.calls.symbols[symbol] ?? "?");
  return h("li", {}, line, frames && frames.length > 0 ? stackOf(frames) : null);
}

// The first frame that is not the scheduler's, since the scheduler's frames only say that the thread slept.
function stackOf(frames: string[]): HTMLElement {
  const sleeping = /^(__)?(schedule|io_schedule|schedule_timeout|preempt_schedule).*/;
  const place = frames.find((frame) => !sleeping.test(frame)) ?? frames[0] ?? "";
  const list = h("ol", { class: "stack" }, ...frames.map((frame) => h("li", {}, frame)));
  return h("details", { class: "stack-of" }, h("summary", {}, "in ", h("code", {}, place), ` (${frames.length} frames)`), list);
}
