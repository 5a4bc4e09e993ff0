// All charts on one time axis, with a shared zoom, cursor and marks.

import type uPlot from "uplot";
import { CallMarks, type Found } from "./call_marks";
import { h, place } from "./dom";
import { ChartFigure, isDrawn, sentence } from "./figure";
import { clock, moment } from "./format";
import { formatRange, parseRange, writeRange } from "./fragment";
import type { CallRow, Chart, Payload } from "./payload";
import { onThemeChange } from "./theme";

const PHONE_STEPS = 40;
const LINK = "Link to range";
// A drag or held key changes the range often; the address follows when it rests.
const REST_MS = 200;

export class Board {
  private readonly figures: ChartFigure[] = [];
  private readonly readout = h("output", { class: "readout" });
  private readonly all: HTMLButtonElement;
  private readonly link: HTMLAnchorElement;
  private readonly callMarks: CallMarks;
  // The chart under the pointer or with the focus.
  private active: ChartFigure | null = null;
  private rest = 0;
  private min = 0;
  private max: number;

  constructor(
    private readonly payload: Payload,
    home: HTMLElement,
  ) {
    this.max = payload.duration_s;
    this.all = h("button", { type: "button", disabled: true, click: () => this.reset() }, "Show all");
    this.link = h("a", { class: "range-link", href: "#charts", click: () => this.copyLink() }, LINK);
    this.callMarks = new CallMarks(payload);
    const hint = h("span", { class: "hint" }, "Drag to zoom, double-click to reset.");
    home.replaceChildren(h("div", { class: "toolbar" }, this.readout, this.all, this.link, hint), ...this.marks());
    const byPlace = new Map<string, Chart[]>();
    for (const chart of payload.charts) byPlace.set(chart.id, [...(byPlace.get(chart.id) ?? []), chart]);
    const places = [...byPlace.values()];
    const drawn = places.filter((charts) => charts.some(isDrawn));
    if (drawn.length > 0 && this.callMarks.about) home.append(h("p", { class: "about" }, this.callMarks.about));
    for (const charts of drawn) {
      const figure = new ChartFigure(payload, charts, this.callMarks, {
        zoom: (min, max) => this.zoom(min, max),
        reset: () => this.reset(),
        cursor: (u) => this.follow(u),
        key: (event, of) => this.key(event, of),
      });
      figure.element.addEventListener("pointerenter", () => this.activate(figure));
      figure.element.addEventListener("focusin", () => this.activate(figure));
      this.figures.push(figure);
      home.append(figure.element);
    }
    if (drawn.length === 0) home.querySelector(".toolbar")?.remove();
    home.append(...collapsed(places.filter((charts) => !charts.some(isDrawn))));
    for (const figure of this.figures) figure.draw();
    this.showRange();
    if (this.figures.length > 0) this.followAddress();
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
    this.showRange();
    clearTimeout(this.rest);
    this.rest = setTimeout(() => writeRange(this.full ? null : formatRange(this.min, this.max)), REST_MS);
  }

  private get full(): boolean {
    return this.min <= 0 && this.max >= this.payload.duration_s;
  }

  // Shows the range of the address, now and whenever it changes.
  private followAddress(): void {
    const follow = () => {
      const range = parseRange(location.hash, this.payload.duration_s);
      if (!range) return;
      this.zoom(...range);
      place("charts")?.scrollIntoView();
    };
    addEventListener("hashchange", follow);
    follow();
  }

  private copyLink(): void {
    const say = (text: string) => {
      this.link.textContent = text;
      setTimeout(() => (this.link.textContent = LINK), 2000);
    };
    // Without the clipboard, the link and the address still have the range.
    navigator.clipboard?.writeText(this.link.href).then(() => say("Link copied"), () => say("Copy it from the address"));
  }

  private activate(figure: ChartFigure): void {
    if (this.active !== figure) this.active?.tip(null);
    this.active = figure;
  }

  reset(): void {
    this.zoom(0, this.payload.duration_s);
  }

  // Zooms to an interval with some time before and after it, and moves the cursor to its start.
  show(from: number, to: number): void {
    const around = Math.max((to - from) * 4, this.payload.duration_s / 60);
    this.zoom(from - around, to + around);
    if (this.figures[0]) this.activate(this.figures[0]);
    this.cursor(from);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    place("charts")?.scrollIntoView({ behavior: calm ? "auto" : "smooth" });
  }

  private showRange(t: number | null = null, call: Found | null = null): void {
    const wall = (at: number) => clock(at, this.payload.wall_start_ms);
    this.all.disabled = this.full;
    this.link.hidden = this.full;
    this.link.href = formatRange(this.min, this.max);
    const range = `${moment(this.min)} – ${moment(this.max)}`.replace(/ s\b/g, "\u00a0s");
    const text = t === null ? range : `${moment(t)}${wall(t) ? ` · ${wall(t)} UTC` : ""}`;
    this.readout.replaceChildren(text, h("span", { class: "heard" }, call ? `. ${call.text}` : ""));
  }

  private follow(u: uPlot): void {
    const figure = this.figures.find((one) => one.uplot === u);
    figure?.showValues(u.cursor.idx);
    if (figure !== this.active) return;
    const left = u.cursor.left ?? -1;
    const call = left >= 0 ? this.callMarks.at(u, left) : null;
    figure?.tip(call);
    for (const one of this.figures) one.highlight(call?.row ?? null);
    this.showRange(u.cursor.idx == null ? null : u.posToVal(left, "x"), call);
  }

  // Moves the cursor to a call, with the range if the call is outside.
  private goTo(call: CallRow | null): void {
    if (!call) return;
    if (call.t < this.min || call.t > this.max) {
      const half = (this.max - this.min) / 2;
      this.zoom(call.t - half, call.t + half);
    }
    this.cursor(call.t);
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
      n: () => this.goTo(this.callMarks.beside(at, true)),
      p: () => this.goTo(this.callMarks.beside(at, false)),
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

// One line for each place without a chart.
function collapsed(places: Chart[][]): HTMLElement[] {
  if (places.length === 0) return [];
  const lines = places.flatMap((charts) => charts.slice(0, 1)).map((chart) => {
    const text = chart.zero === null ? `Not recorded. ${sentence(chart.missing ?? "")}` : sentence(chart.zero);
    return h("li", { id: `chart-${chart.id}` }, h("strong", {}, `${chart.title}: `), text);
  });
  return [h("ul", { class: "collapsed", "aria-label": "Charts that are not drawn" }, ...lines)];
}
