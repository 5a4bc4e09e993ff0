// All charts on one time axis, with a shared zoom, cursor and marks.

import type uPlot from "uplot";
import { h, place } from "./dom";
import { ChartFigure } from "./figure";
import { clock, moment } from "./format";
import type { Chart, Payload } from "./payload";
import { onThemeChange } from "./theme";

const PHONE_STEPS = 40;

export class Board {
  private readonly figures: ChartFigure[] = [];
  private readonly readout = h("output", { class: "readout" });
  private readonly all: HTMLButtonElement;
  private min = 0;
  private max: number;

  constructor(
    private readonly payload: Payload,
    home: HTMLElement,
  ) {
    this.max = payload.duration_s;
    this.all = h("button", { type: "button", disabled: true, click: () => this.reset() }, "Show all");
    const hint = h("span", { class: "hint" }, "Drag to zoom, double-click to reset.");
    home.replaceChildren(h("div", { class: "toolbar" }, this.readout, this.all, hint), ...this.marks());
    const byPlace = new Map<string, Chart[]>();
    for (const chart of payload.charts) byPlace.set(chart.id, [...(byPlace.get(chart.id) ?? []), chart]);
    for (const charts of byPlace.values()) {
      const figure = new ChartFigure(payload, charts, {
        zoom: (min, max) => this.zoom(min, max),
        reset: () => this.reset(),
        cursor: (u) => this.follow(u),
        key: (event, of) => this.key(event, of),
      });
      this.figures.push(figure);
      home.append(figure.element);
    }
    for (const figure of this.figures) figure.draw();
    this.tellRange();
    onThemeChange(() => this.redraw());
    let width = home.clientWidth;
    new ResizeObserver(() => {
      if (home.clientWidth === width) return;
      width = home.clientWidth;
      requestAnimationFrame(() => this.redraw());
    }).observe(home);
  }

  private redraw(): void {
    for (const figure of this.figures) figure.draw();
  }

  private marks(): HTMLElement[] {
    if (this.payload.marks.length === 0) return [];
    const items = this.payload.marks.map((mark) =>
      h(
        "li",
        {},
        h("button", { type: "button", class: "moment", click: () => this.show(mark.t, mark.t) }, moment(mark.t)),
        ` ${mark.text}`,
      ),
    );
    const shown = h("ul", { class: "marks" }, ...items);
    const title = `${items.length} ${items.length === 1 ? "mark" : "marks"} (dotted lines)`;
    return [h("details", { class: "mark-list", open: items.length <= 3 }, h("summary", {}, title), shown)];
  }

  zoom(min: number, max: number): void {
    const end = this.payload.duration_s;
    // At least a tenth of a millisecond: narrower intervals show nothing more.
    const width = Math.min(Math.max(max - min, 1e-4), end);
    this.min = Math.min(Math.max(min, 0), end - width);
    this.max = this.min + width;
    for (const figure of this.figures) figure.zoom(this.min, this.max);
    this.tellRange();
  }

  reset(): void {
    this.zoom(0, this.payload.duration_s);
  }

  // Zooms to an interval with some time before and after it, and moves the cursor to its start.
  show(from: number, to: number): void {
    const around = Math.max((to - from) * 4, this.payload.duration_s / 60);
    this.zoom(from - around, to + around);
    for (const figure of this.figures) figure.cursorTo(from);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    place("charts")?.scrollIntoView({ behavior: calm ? "auto" : "smooth" });
  }

  private tellRange(t: number | null = null): void {
    const wall = (at: number) => clock(at, this.payload.wall_start_ms);
    const full = this.min <= 0 && this.max >= this.payload.duration_s;
    this.all.disabled = full;
    const range = `${moment(this.min)} – ${moment(this.max)}`;
    this.readout.textContent = t === null ? range : `${moment(t)}${wall(t) ? ` · ${wall(t)} UTC` : ""}`;
  }

  private follow(u: uPlot): void {
    const t = u.cursor.idx == null ? null : u.posToVal(u.cursor.left ?? 0, "x");
    const figure = this.figures.find((one) => one.uplot === u);
    figure?.tell(u.cursor.idx);
    this.tellRange(t);
  }

  private key(event: KeyboardEvent, figure: ChartFigure): void {
    const u = figure.uplot;
    if (!u) return;
    const step = (event.shiftKey ? 10 : 1) / (u.over.clientWidth < 500 ? PHONE_STEPS : 200);
    const span = this.max - this.min;
    const at = u.cursor.left != null && u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : (this.min + this.max) / 2;
    const keys: Record<string, () => void> = {
      ArrowLeft: () => this.cursor(at - span * step),
      ArrowRight: () => this.cursor(at + span * step),
      "+": () => this.zoom(at - span / 4, at + span / 4),
      "=": () => this.zoom(at - span / 4, at + span / 4),
      "-": () => this.zoom(at - span, at + span),
      Escape: () => this.reset(),
    };
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  private cursor(t: number): void {
    const within = Math.min(Math.max(t, this.min), this.max);
    for (const figure of this.figures) figure.cursorTo(within);
  }
}
