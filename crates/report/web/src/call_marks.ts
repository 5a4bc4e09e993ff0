// Marks of the slow calls above every chart, and the call at a place of the time axis.

import type uPlot from "uplot";
import { count, moment, time } from "./format";
import type { CallRow, Payload } from "./payload";
import { causeClass, variable } from "./theme";

// Room above the plotting area, and the height of a mark in it, in CSS pixels.
export const ROOM = 14;
const HEIGHT = 7;
const NARROWEST = 2;
// A finger or a pointer this far from a mark selects it.
const REACH = 6;

export interface Found {
  row: CallRow;
  text: string;
}

export class CallMarks {
  // By duration, so that the longest is drawn last.
  private readonly rows: CallRow[];
  private readonly byTime: CallRow[];

  constructor(private readonly payload: Payload) {
    const own = payload.calls.rows.filter((row) => !row.neighbour);
    this.rows = [...own].sort((a, b) => a.ns - b.ns);
    this.byTime = [...own].sort((a, b) => a.t - b.t);
  }

  get about(): string | null {
    const { calls } = this.payload;
    if (this.rows.length === 0) return null;
    const [shown, left] = [count(this.rows.length), calls.own_left_out];
    const which = left > 0 ? `the longest ${shown} of ${count(this.rows.length + left)} slow calls` : "slow calls";
    return `Marks above the charts: ${which}, coloured by cause. Point at one or tap it, or press n and p in a chart.`;
  }

  draw(u: uPlot): void {
    const ratio = devicePixelRatio;
    const { left, top, width } = u.bbox;
    const colours = new Map<string, string>();
    u.ctx.save();
    for (const row of this.rows) {
      const from = u.valToPos(row.t, "x", true);
      const to = u.valToPos(row.t + row.ns / 1e9, "x", true);
      const [begin, end] = [Math.max(from, left), Math.min(Math.max(to, from + NARROWEST * ratio), left + width)];
      if (begin >= end) continue;
      const name = causeClass(this.payload, row.cause);
      const colour = colours.get(name) ?? variable(`--${name}`);
      colours.set(name, colour);
      u.ctx.fillStyle = colour;
      u.ctx.fillRect(begin, top - (HEIGHT + 3) * ratio, end - begin, HEIGHT * ratio);
    }
    u.ctx.restore();
  }

  // The longest call within reach of a place on the chart, in CSS pixels from the left of the plotting area.
  at(u: uPlot, x: number): Found | null {
    let found: CallRow | null = null;
    let others = 0;
    for (const row of this.rows) {
      const from = u.valToPos(row.t, "x");
      const to = Math.max(u.valToPos(row.t + row.ns / 1e9, "x"), from + NARROWEST);
      if (x < from - REACH || x > to + REACH) continue;
      if (found) others += 1;
      found = row;
    }
    return found && { row: found, text: this.text(found, others) };
  }

  // The next call after a moment, or the previous one.
  beside(t: number, forward: boolean): CallRow | null {
    const close = 1e-6;
    if (forward) return this.byTime.find((row) => row.t > t + close) ?? null;
    return this.byTime.filter((row) => row.t < t - close).pop() ?? null;
  }

  private text(row: CallRow, others: number): string {
    const { calls, causes } = this.payload;
    const share = Math.round((100 * row.cause_ns) / Math.max(row.ns, 1));
    const file = row.file === null ? "" : (calls.files[row.file]?.split("/").pop() ?? "");
    const more = others > 0 ? `; ${count(others)} more ${others === 1 ? "mark" : "marks"} here` : "";
    const took = row.still_under_way ? `has taken ${time(row.ns)}` : `took ${time(row.ns)}`;
    return `${calls.ops[row.op]}()${file ? ` of ${file}` : ""} by ${calls.threads[row.thread]} at ${moment(row.t)} ${took}, ${causes[row.cause]} ${share} %${more}`;
  }
}
