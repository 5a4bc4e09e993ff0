// A place on the board: a chart, or a choice of charts, with title, explanation, and a legend of buttons.

import uPlot from "uplot";
import type { CallMarks, Found } from "./call_marks";
import { h } from "./dom";
import { value } from "./format";
import type { CallRow, Chart, Line, Payload, Unit } from "./payload";
import { colourOf, columns, drawOrder, isStack, options, type Listeners } from "./plot";
import { theme } from "./theme";

// Gap between the cursor and the name of the call, CSS pixels.
const TIP_GAP = 10;

export class ChartFigure {
  readonly element: HTMLElement;
  private plot: uPlot | null = null;
  private chart: Chart;
  private readonly hidden = new Set<string>();
  private readonly canvas = h("div", { class: "plot" });
  private readonly legend = h("div", { class: "legend" });
  private readonly about = h("p", { class: "about" });
  private values: HTMLElement[] = [];
  private readonly named = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
  private readonly band = h("div", { class: "call-band", hidden: true });

  constructor(
    private readonly payload: Payload,
    private readonly charts: Chart[],
    private readonly callMarks: CallMarks,
    private readonly on: Listeners & { key(event: KeyboardEvent, figure: ChartFigure): void },
  ) {
    const first = charts.find(isDrawn) ?? charts[0];
    if (!first) throw new Error("a figure without a chart");
    this.chart = first;
    const title = h("h3", {}, first.title);
    const head = h("div", { class: "figure-head" }, title);
    if (charts.length > 1) head.append(this.choices());
    this.element = h("figure", { id: `chart-${first.id}` }, head, this.about, this.canvas, this.legend);
    this.canvas.addEventListener("keydown", (event) => on.key(event, this));
    this.describe();
  }

  private choices(): HTMLElement {
    const buttons = this.charts.map((chart) =>
      h("button", { type: "button", "aria-pressed": String(chart === this.chart), click: () => this.choose(chart) }, chart.choice),
    );
    return h("div", { class: "choices", role: "group", "aria-label": "Which calls" }, ...buttons);
  }

  private choose(chart: Chart): void {
    this.chart = chart;
    this.element.querySelectorAll(".choices button").forEach((button, place) => {
      button.setAttribute("aria-pressed", String(this.charts[place] === chart));
    });
    const range = this.range();
    this.describe();
    this.draw();
    if (range) this.zoom(...range);
  }

  private describe(): void {
    const { chart } = this;
    this.about.textContent = isDrawn(chart) ? chart.about : "";
    this.legend.replaceChildren();
    this.values = [];
    if (!isDrawn(chart)) return;
    chart.lines.forEach((line, place) => {
      const amount = h("span", { class: "value" });
      const swatch = h("span", { class: `swatch ${/^(dashed|limit)/.test(line.look) ? "dashed" : ""}` });
      swatch.style.color = colourOf(this.payload, chart, place);
      const button = h(
        "button",
        { type: "button", "aria-pressed": String(!this.hidden.has(line.name)), title: "Show or hide", click: () => this.toggle(place) },
        swatch,
        h("span", { class: "name" }, line.name),
        amount,
      );
      this.legend.append(button);
      this.values.push(amount);
    });
    this.showValues(null);
  }

  private toggle(place: number): void {
    const line = this.chart.lines[place];
    if (!line) return;
    const hide = !this.hidden.has(line.name);
    if (hide) this.hidden.add(line.name);
    else this.hidden.delete(line.name);
    this.legend.children[place]?.setAttribute("aria-pressed", String(!hide));
    if (isStack(this.chart)) this.plot?.setData(columns(this.chart, this.hiddenPlaces()), false);
    this.plot?.setSeries(drawOrder(this.chart).indexOf(place) + 1, { show: !hide });
  }

  private hiddenPlaces(): Set<number> {
    return new Set(this.chart.lines.flatMap((line, place) => (this.hidden.has(line.name) ? [place] : [])));
  }

  // Builds the plot again with the current width and colours.
  draw(): void {
    const range = this.range();
    this.plot?.destroy();
    this.plot = null;
    this.canvas.replaceChildren();
    const { chart } = this;
    if (!isDrawn(chart)) {
      for (const name of ["tabindex", "role", "aria-label"]) this.canvas.removeAttribute(name);
      this.canvas.append(h("p", { class: "empty" }, sentence(chart.zero ?? `not recorded: ${chart.missing}`)));
      return;
    }
    this.canvas.setAttribute("tabindex", "0");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `${chart.title}. ${chart.about} Arrow keys move the cursor, n and p go to slow calls, plus and minus zoom.`);
    const width = Math.max(this.canvas.clientWidth, 200);
    const height = width < 600 ? 190 : chart.id === "latency" ? 280 : 210;
    const data = columns(chart, this.hiddenPlaces());
    const plot = new uPlot(options(this.payload, chart, theme(), width, height, this.on, this.callMarks), data, this.canvas);
    this.plot = plot;
    plot.over.append(this.band);
    plot.over.append(this.named);
    chart.lines.forEach((line, place) => {
      if (this.hidden.has(line.name)) this.plot?.setSeries(drawOrder(chart).indexOf(place) + 1, { show: false });
    });
    this.describe();
    this.zoom(...(range ?? [0, this.payload.duration_s]));
  }

  private range(): [number, number] | null {
    const x = this.plot?.scales["x"];
    return x && x.min != null && x.max != null ? [x.min, x.max] : null;
  }

  zoom(min: number, max: number): void {
    this.plot?.setScale("x", { min, max });
  }

  // Shows the values under the cursor, or the extremes if the cursor is outside the chart.
  showValues(index: number | null | undefined): void {
    this.chart.lines.forEach((line, place) => {
      const cell = this.values[place];
      const unit = line.right ? (this.chart.right_unit ?? this.chart.unit) : this.chart.unit;
      if (cell) cell.textContent = index == null ? extreme(line, this.chart, unit) : value(line.y[index], unit);
    });
  }

  get uplot(): uPlot | null {
    return this.plot;
  }

  // Names the call beside the cursor.
  tip(call: Found | null): void {
    const { plot, named } = this;
    named.hidden = call === null || !plot;
    if (!call || !plot) return;
    named.textContent = call.text;
    const [width, room, x] = [named.offsetWidth, plot.over.clientWidth, plot.cursor.left ?? 0];
    const beside = x > room / 2 ? x - width - TIP_GAP : x + TIP_GAP;
    named.style.left = `${Math.max(0, Math.min(beside, room - width))}px`;
  }

  // Shades the time of a call.
  highlight(call: CallRow | null): void {
    const { plot, band } = this;
    band.hidden = call === null || !plot;
    if (!call || !plot) return;
    const room = plot.over.clientWidth;
    const within = (t: number) => Math.min(Math.max(plot.valToPos(t, "x"), 0), room);
    const [from, to] = [within(call.t), within(call.t + call.ns / 1e9)];
    band.style.left = `${from}px`;
    band.style.width = `${Math.max(to - from, 2)}px`;
  }

  cursorTo(t: number): void {
    this.plot?.setCursor({ left: this.plot.valToPos(t, "x"), top: 10 });
  }
}

// The value shown without a cursor: the highest of the run, or the lowest for free memory above a watermark.
function extreme(line: Line, chart: Chart, unit: Unit): string {
  const lowest = chart.scale === "signed-log";
  let found: number | null = null;
  for (const v of line.y) {
    if (v !== null && (found === null || (lowest ? v < found : v > found))) found = v;
  }
  return found === null ? "" : `${lowest ? "min" : "max"} ${value(found, unit)}`;
}

export function isDrawn(chart: Chart): boolean {
  return chart.missing === null && chart.zero === null;
}

export function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;
}
