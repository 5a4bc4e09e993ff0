// Scales and axes: how each unit is divided and labelled.

import uPlot from "uplot";
import { moment, short, value } from "./format";
import type { Chart, Unit } from "./payload";
import type { Theme } from "./theme";

const SECONDS = [
  0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600,
  900, 1800, 3600, 7200, 14400, 28800,
];
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);

// The scale is linear up to this distance from 0 and logarithmic beyond: a few MiB decide whether an allocation waits.
const LINEAR_BYTES = 4 * 2 ** 20;
const LINEAR_PAGES = 1024;

function linearAround(unit: Unit): number {
  return unit === "bytes" ? LINEAR_BYTES : LINEAR_PAGES;
}

function withLevels(chart: Chart, min: number | null, max: number | null): [number, number] | null {
  const values = chart.levels.map((level) => level.value);
  if (min !== null && max !== null) values.push(min, max);
  return values.length > 0 ? [Math.min(...values), Math.max(...values)] : null;
}

export function leftScale(chart: Chart): uPlot.Scale {
  const full = (min: number | null, max: number | null) => withLevels(chart, min, max);
  switch (chart.scale) {
    case "log":
      return {
        distr: 3,
        range: (_u, min, max) => {
          const [low, high] = full(min, max) ?? [1e3, 1e6];
          const from = 10 ** Math.floor(Math.log10(Math.max(low, 1)));
          return [from, Math.max(10 ** Math.ceil(Math.log10(Math.max(high * 1.05, 1))), from * 10)];
        },
      };
    case "signed-log":
      return {
        distr: 4,
        asinh: linearAround(chart.unit),
        range: (_u, min, max) => {
          const [low, high] = full(min, max) ?? [0, 1];
          const pad = linearAround(chart.unit) / 2;
          return [low < 0 ? low * 1.6 - pad : -pad, high * 1.6 + pad];
        },
      };
    case "linear":
      return {
        range: (_u, min, max) => {
          const [, high] = full(min, max) ?? [0, 1];
          return [0, high > 0 ? high * 1.08 : 1];
        },
      };
  }
}

function splits(chart: Chart): uPlot.Axis.Splits | undefined {
  if (chart.scale === "log") {
    return (_u, _axis, min, max) => {
      const found: number[] = [];
      for (let at = 10 ** Math.ceil(Math.log10(min) - 1e-9); at <= max * 1.0001; at *= 10) found.push(at);
      return found;
    };
  }
  if (chart.scale === "signed-log") {
    return (_u, _axis, min, max) => {
      const found: number[] = [0];
      for (let at = 4 * linearAround(chart.unit); at <= Math.max(max, -min); at *= 16) {
        if (at <= max) found.push(at);
        if (-at >= min) found.unshift(-at);
      }
      return found;
    };
  }
  return undefined;
}

export function axes(chart: Chart, look: Theme, right: number): uPlot.Axis[] {
  const shared = {
    stroke: look.quiet,
    font: look.font,
    grid: { stroke: look.grid, width: 1 },
    ticks: { show: false },
  };
  const time: uPlot.Axis = {
    ...shared,
    incrs: SECONDS,
    space: 70,
    size: 26,
    values: (_u, at) => at.map((t) => moment(t, false)),
  };
  const left: uPlot.Axis = {
    ...shared,
    scale: "y",
    size: 74,
    space: 30,
    values: (_u, at) => at.map((v) => (chart.unit === "pages" ? short(v) : value(v, chart.unit))),
  };
  const own = splits(chart);
  if (own) {
    left.splits = own;
    // Without this, uPlot hides labels that it considers too close to 0 on such a scale.
    left.filter = (_u, at) => at;
  }
  if (!own && (chart.unit === "bytes" || chart.unit === "bytes-per-second")) left.incrs = BINARY;
  const all = [time, left];
  const unit = chart.right_unit;
  if (unit) {
    all.push({
      ...shared,
      scale: "right",
      side: 1,
      size: right,
      grid: { show: false },
      values: (_u, at) => at.map((v) => value(v, unit)),
    });
  }
  return all;
}
