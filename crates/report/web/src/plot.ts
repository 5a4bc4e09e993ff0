// One chart drawn by uPlot: lines, stacks, levels and marks.

import uPlot from "uplot";
import { ROOM, type CallMarks } from "./call_marks";
import type { Chart, Line, Mark, Payload } from "./payload";
import { axes, leftScale } from "./scales";
import { causeColour, lineColour, variable, type Theme } from "./theme";

// Order of the lines in uPlot's data. The lines of a stack are drawn from the top down, so the tallest first.
export function drawOrder(chart: Chart): number[] {
  const places = chart.lines.map((_, place) => place);
  return isStack(chart) ? places.reverse() : places;
}

export function isStack(chart: Chart): boolean {
  return chart.lines.some((line) => line.look === "stack");
}

export function colourOf(payload: Payload, chart: Chart, place: number): string {
  const line = chart.lines[place];
  if (!line) return "";
  switch (line.look) {
    case "stack":
      return causeColour(payload, line.cause);
    case "strong":
    case "strong-step":
      return variable("--k0");
    case "faint-step":
    case "faint":
    case "dashed":
    case "dashed-step":
      return variable("--ko");
    case "limit":
      return variable("--alarm");
    default: {
      const plain = chart.lines.filter((one) => ["plain", "step", "points"].includes(one.look));
      return lineColour(plain.indexOf(line) + 1);
    }
  }
}

// The columns of uPlot's data. Hidden lines of a stack count as 0.
export function columns(chart: Chart, hidden: Set<number>): uPlot.AlignedData {
  if (!isStack(chart)) return [chart.t, ...chart.lines.map((line) => line.y)];
  const sums: number[][] = [];
  const sum = chart.t.map(() => 0);
  chart.lines.forEach((line, place) => {
    if (!hidden.has(place)) line.y.forEach((v, at) => (sum[at] = (sum[at] ?? 0) + (v ?? 0)));
    sums.push([...sum]);
  });
  return [chart.t, ...drawOrder(chart).map((place) => sums[place] ?? [])];
}

// A value without neighbours has no line, so it is drawn as a point.
function alone(y: (number | null)[]): uPlot.Series.Points.Filter {
  const known = (at: number) => y[at] !== null && y[at] !== undefined;
  const places = y.flatMap((_, at) => (known(at) && !known(at - 1) && !known(at + 1) ? [at] : []));
  return () => places;
}

function series(line: Line, colour: string, wide: boolean): uPlot.Series {
  const scale = line.right ? "right" : "y";
  const points = { show: true, filter: alone(line.y), size: 4, fill: colour, width: 0 };
  const base: uPlot.Series = { label: line.name, scale, stroke: colour, width: 1.25, points };
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  switch (line.look) {
    case "stack":
      return { ...base, width: 0, fill: colour, points: { show: false }, paths: uPlot.paths.bars?.({ size: [1, 1000], align: 1, gap: 0 }) };
    case "points":
      return { ...base, paths: () => null, points: { show: true, size: wide ? 5 : 4, fill: colour, width: 0 } };
    case "strong":
      return { ...base, width: 2.25 };
    case "faint":
      return { ...base, width: 1 };
    case "dashed":
    case "limit":
      return { ...base, dash: [6, 4] };
    case "step":
      return { ...base, paths: stepped };
    case "strong-step":
      return { ...base, width: 2.25, paths: stepped };
    case "faint-step":
      return { ...base, width: 1, paths: stepped };
    case "dashed-step":
      return { ...base, dash: [3, 3], paths: stepped };
    case "plain":
      return base;
  }
}

// Space for a right-hand axis, the same in all charts, so that a moment has the same x in each.
export function rightRoom(payload: Payload): number {
  return payload.charts.some((chart) => chart.right_unit) ? 52 : 18;
}

// The visible parts of the intervals without readings, in canvas pixels.
function holes(u: uPlot, chart: Chart): [number, number][] {
  const { left, width } = u.bbox;
  const within = (t: number) => Math.min(Math.max(u.valToPos(t, "x", true), left), left + width);
  return chart.holes.map(([from, to]): [number, number] => [within(from), within(to)]).filter(([begin, end]) => begin < end);
}

function labelHoles(u: uPlot, chart: Chart, look: Theme): void {
  const text = "not read";
  u.ctx.save();
  u.ctx.font = look.font.replace("11px", `${11 * devicePixelRatio}px`);
  u.ctx.textAlign = "center";
  u.ctx.fillStyle = look.quiet;
  for (const [begin, end] of holes(u, chart)) {
    const fits = u.ctx.measureText(text).width + 8 * devicePixelRatio <= end - begin;
    if (fits) u.ctx.fillText(text, (begin + end) / 2, u.bbox.top + u.bbox.height / 2);
  }
  u.ctx.restore();
}

// Draws the shade below a level and over intervals without readings, behind the data.
function shade(u: uPlot, chart: Chart, look: Theme): void {
  const { left, top, width, height } = u.bbox;
  for (const [begin, end] of holes(u, chart)) {
    u.ctx.fillStyle = look.floor;
    u.ctx.fillRect(begin, top, end - begin, height);
  }
  for (const level of chart.levels) {
    if (!level.shade_below) continue;
    const y = Math.min(Math.max(u.valToPos(level.value, "y", true), top), top + height);
    u.ctx.fillStyle = look.floor;
    u.ctx.fillRect(left, y, width, top + height - y);
  }
}

function drawLevels(u: uPlot, chart: Chart, look: Theme): void {
  const { left, top, width, height } = u.bbox;
  const ratio = devicePixelRatio;
  u.ctx.save();
  u.ctx.font = look.font.replace("11px", `${11 * ratio}px`);
  u.ctx.textAlign = "right";
  for (const level of chart.levels) {
    const y = Math.round(u.valToPos(level.value, "y", true)) + 0.5;
    if (y < top || y > top + height) continue;
    u.ctx.strokeStyle = look.quiet;
    u.ctx.lineWidth = ratio;
    u.ctx.setLineDash([2 * ratio, 3 * ratio]);
    u.ctx.beginPath();
    u.ctx.moveTo(left, y);
    u.ctx.lineTo(left + width, y);
    u.ctx.stroke();
    u.ctx.setLineDash([]);
    const below = level.shade_below && y + 14 * ratio < top + height;
    const at: [string, number, number] = [level.name, left + width - 4 * ratio, below ? y + 13 * ratio : y - 5 * ratio];
    // A halo in the page's colour keeps the name readable where lines cross it.
    u.ctx.strokeStyle = look.paper;
    u.ctx.lineWidth = 3 * ratio;
    u.ctx.strokeText(...at);
    u.ctx.fillStyle = look.quiet;
    u.ctx.fillText(...at);
  }
  u.ctx.restore();
}

function drawMarks(u: uPlot, marks: Mark[], look: Theme): void {
  const { left, top, width, height } = u.bbox;
  u.ctx.save();
  u.ctx.strokeStyle = look.ink;
  u.ctx.globalAlpha = 0.45;
  u.ctx.lineWidth = devicePixelRatio;
  u.ctx.setLineDash([1 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const mark of marks) {
    const x = Math.round(u.valToPos(mark.t, "x", true)) + 0.5;
    if (x < left || x > left + width) continue;
    u.ctx.beginPath();
    u.ctx.moveTo(x, top);
    u.ctx.lineTo(x, top + height);
    u.ctx.stroke();
  }
  u.ctx.restore();
}

export interface Listeners {
  zoom(min: number, max: number): void;
  reset(): void;
  cursor(u: uPlot): void;
}

export function options(
  payload: Payload,
  chart: Chart,
  look: Theme,
  width: number,
  height: number,
  on: Listeners,
  callMarks: CallMarks,
): uPlot.Options {
  return {
    width,
    height,
    padding: [ROOM, chart.right_unit ? 0 : rightRoom(payload), 0, 0],
    legend: { show: false },
    cursor: {
      sync: { key: "run", setSeries: false },
      points: { size: 6 },
      drag: { x: true, y: false, setScale: false },
      // On touch screens a drag scrolls the page; a tap sets the cursor.
      bind: { dblclick: () => () => (on.reset(), null) },
    },
    scales: {
      x: { time: false, range: (_u, min, max) => [min, max] },
      y: leftScale(chart),
      ...(chart.right_unit ? { right: { range: (_u: uPlot, _min: number, max: number): [number, number] => [0, Math.max(1, max || 0)] } } : {}),
    },
    axes: axes(chart, look, rightRoom(payload)),
    series: [
      {},
      ...drawOrder(chart).map((place) => {
        const line = chart.lines[place];
        return line ? series(line, colourOf(payload, chart, place), width > 600) : {};
      }),
    ],
    hooks: {
      drawClear: [(u) => shade(u, chart, look)],
      draw: [(u) => drawLevels(u, chart, look), (u) => labelHoles(u, chart, look), (u) => drawMarks(u, payload.marks, look), (u) => callMarks.draw(u)],
      setSelect: [
        (u) => {
          if (u.select.width < 4) return;
          const min = u.posToVal(u.select.left, "x");
          const max = u.posToVal(u.select.left + u.select.width, "x");
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          on.zoom(min, max);
        },
      ],
      setCursor: [(u) => on.cursor(u)],
    },
  };
}
