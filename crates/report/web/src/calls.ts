// The table of slow calls: sorted by buttons in the headings, filtered; each row opens the detail of the call.

import { detail } from "./call_detail";
import { h, svg } from "./dom";
import { count, moment, time } from "./format";
import type { CallRow, Payload } from "./payload";
import { causeClass } from "./theme";

const PAGE = 50;

type Key = "t" | "ns" | "late" | "op" | "thread" | "cause";

interface Column {
  key: Key;
  name: string;
  numeric: boolean;
  of(row: CallRow): number | string;
}

export class CallTable {
  private key: Key = "ns";
  private down = true;
  private shown = PAGE;
  private cause = "";
  private op = "";
  private neighbours = false;
  private readonly columns: Column[];
  private readonly body = h("tbody");
  private readonly more = h("div", { class: "more" });
  private readonly heads: HTMLElement[];
  private readonly open = new Set<CallRow>();

  constructor(
    private readonly payload: Payload,
    home: HTMLElement,
    private readonly show: (from: number, to: number) => void,
  ) {
    const { calls, causes } = payload;
    if (calls.missing !== null) {
      home.replaceChildren(h("p", { class: "empty" }, calls.missing));
      this.columns = [];
      this.heads = [];
      return;
    }
    const late = calls.rows.some((row) => row.late_ns !== null);
    this.columns = [
      { key: "t", name: "at", numeric: true, of: (row) => row.t },
      { key: "ns", name: "took", numeric: true, of: (row) => row.ns },
      ...(late ? [{ key: "late" as const, name: "began late by", numeric: true, of: (row: CallRow) => row.late_ns ?? -1 }] : []),
      { key: "op", name: "call", numeric: false, of: (row) => calls.ops[row.op] ?? "" },
      { key: "thread", name: "thread", numeric: false, of: (row) => calls.threads[row.thread] ?? "" },
      { key: "cause", name: "mostly", numeric: false, of: (row) => causes[row.cause] ?? "" },
    ];
    this.heads = this.columns.map((column) =>
      h(
        "th",
        { scope: "col", class: `col-${column.key} ${column.numeric ? "n" : ""}` },
        h("button", { type: "button", class: "sort", click: () => this.sortBy(column) }, column.name),
      ),
    );
    const table = h(
      "table",
      { class: "calls" },
      h("thead", {}, h("tr", {}, ...this.heads, h("th", { scope: "col", class: "where" }, "where it went"))),
      this.body,
    );
    const scroll = h("div", { class: "scroll", role: "region", "aria-label": "Slow calls" }, table);
    home.replaceChildren(this.filters(), scroll, this.more);
    this.render();
  }

  private filters(): HTMLElement {
    const { calls, causes } = this.payload;
    const used = [...new Set(calls.rows.map((row) => causes[row.cause] ?? ""))].sort();
    const bar = h("div", { class: "filters" });
    const select = (label: string, names: string[], pick: (name: string) => void) => {
      const options = ["", ...names].map((name) => h("option", { value: name }, name || "all"));
      const field = h("select", { change: (event) => pick((event.target as HTMLSelectElement).value) }, ...options);
      bar.append(h("label", {}, `${label} `, field));
    };
    if (used.length > 1) select("cause", used, (name) => this.filter(() => (this.cause = name)));
    if (calls.ops.length > 1) select("call", [...calls.ops].sort(), (name) => this.filter(() => (this.op = name)));
    if (calls.rows.some((row) => row.neighbour)) {
      const box = h("input", { type: "checkbox", change: () => this.filter(() => (this.neighbours = !this.neighbours)) });
      bar.append(h("label", {}, box, " neighbours' calls too"));
    }
    if (calls.left_out > 0) {
      const longest = calls.left_out_ns_max === null ? "" : `, none longer than ${time(calls.left_out_ns_max)}`;
      const text = `The longest ${count(calls.rows.length)} of ${count(calls.total)}; ${count(calls.left_out)} are left out${longest}.`;
      bar.append(h("span", { class: "hint" }, text));
    }
    return bar;
  }

  private filter(change: () => void): void {
    change();
    this.shown = PAGE;
    this.render();
  }

  private sortBy(column: Column): void {
    this.down = this.key === column.key ? !this.down : column.numeric && column.key !== "t";
    this.key = column.key;
    this.render();
  }

  private rows(): CallRow[] {
    const { calls, causes } = this.payload;
    const column = this.columns.find((one) => one.key === this.key);
    const kept = calls.rows.filter(
      (row) =>
        (this.neighbours || !row.neighbour) &&
        (this.cause === "" || causes[row.cause] === this.cause) &&
        (this.op === "" || calls.ops[row.op] === this.op),
    );
    if (!column) return kept;
    const turn = this.down ? -1 : 1;
    return kept.sort((a, b) => {
      const [x, y] = [column.of(a), column.of(b)];
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      return order * turn || b.ns - a.ns;
    });
  }

  private render(): void {
    this.columns.forEach((column, place) => {
      const sorted = column.key === this.key ? (this.down ? "descending" : "ascending") : "none";
      this.heads[place]?.setAttribute("aria-sort", sorted);
    });
    const rows = this.rows();
    this.body.replaceChildren(...rows.slice(0, this.shown).flatMap((row) => this.row(row)));
    if (rows.length === 0) {
      const cell = h("td", { colspan: this.columns.length + 1, class: "empty" }, "No slow call matches.");
      this.body.replaceChildren(h("tr", {}, cell));
    }
    const rest = rows.length - this.shown;
    this.more.replaceChildren();
    if (rest > 0) {
      const text = `Show ${Math.min(rest, 2 * PAGE)} more of ${count(rest)}`;
      this.more.append(h("button", { type: "button", click: () => ((this.shown += 2 * PAGE), this.render()) }, text));
    }
  }

  private row(row: CallRow): HTMLElement[] {
    const { calls, causes } = this.payload;
    const cells = this.columns.map((column) => this.cell(column, row));
    const open = this.open.has(row);
    const name = `${calls.ops[row.op]}() at ${moment(row.t)}`;
    const button = h("button", { type: "button", class: "open", "aria-expanded": String(open), "aria-label": `Timeline of ${name}` });
    cells[0]?.prepend(button);
    const bar = h("td", { class: "where" }, this.miniature(row));
    const line = h("tr", { class: row.neighbour ? "neighbour" : "", title: causes[row.cause] ?? "" }, ...cells, bar);
    const inside = h("td", { colspan: this.columns.length + 1 });
    const under = h("tr", { class: "detail", hidden: !open }, inside);
    if (open) inside.append(detail(this.payload, row, this.show));
    const toggle = () => {
      const opens = under.hidden;
      under.hidden = !opens;
      button.setAttribute("aria-expanded", String(opens));
      if (opens) this.open.add(row);
      else this.open.delete(row);
      inside.replaceChildren(...(opens ? [detail(this.payload, row, this.show)] : []));
    };
    line.addEventListener("click", (event) => {
      // Selecting text must not fold the row.
      if (event.target === button || !getSelection()?.toString()) toggle();
    });
    return [line, under];
  }

  private cell(column: Column, row: CallRow): HTMLElement {
    const { calls, causes } = this.payload;
    switch (column.key) {
      case "t":
        return h("td", { class: "n" }, moment(row.t));
      case "ns":
        return h("td", { class: "n strong" }, time(row.ns));
      case "late":
        return h("td", { class: "col-late n" }, row.late_ns === null ? "–" : time(row.late_ns));
      case "op":
        return h("td", { class: "col-op" }, `${calls.ops[row.op]}()`);
      case "thread":
        return h("td", { class: "thread col-thread" }, calls.threads[row.thread] ?? "");
      case "cause": {
        const name = h("span", { class: `cause ${causeClass(this.payload, row.cause)}` }, causes[row.cause] ?? "");
        return h("td", {}, name, ` ${Math.round((100 * row.cause_ns) / Math.max(row.ns, 1))} %`);
      }
    }
  }

  // The call's time by cause. The width is the call's duration relative to the longest call.
  private miniature(row: CallRow): SVGElement {
    const sums = new Map<number, number>();
    for (const part of row.parts) sums.set(part[2], (sums.get(part[2]) ?? 0) + part[1]);
    const total = Math.max(row.ns, 1);
    let at = 0;
    const rects = [...sums].sort((a, b) => b[1] - a[1]).map(([cause, ns]) => {
      const width = (100 * ns) / total;
      const rect = svg("rect", { x: `${at.toFixed(2)}%`, width: `${width.toFixed(2)}%`, height: "10", class: causeClass(this.payload, cause) });
      at += width;
      return rect;
    });
    return svg("svg", { class: "miniature", width: "100%", height: "10", "aria-hidden": "true" }, ...rects);
  }
}
