// Formats numbers for people as the Rust side does: three digits and a unit.

import type { Unit } from "./payload";

function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 99.95 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(size >= 9.995 ? 1 : 2);
}

function scaled(value: number, steps: [number, string][]): string {
  const size = Math.abs(value);
  for (const [from, unit] of steps) {
    if (size >= from) return `${digits(value / from)} ${unit}`;
  }
  const last = steps[steps.length - 1];
  return last ? `${digits(value / last[0])} ${last[1]}` : String(value);
}

export function time(ns: number): string {
  if (ns === 0) return "0";
  if (Math.abs(ns) >= 6e11) return `${digits(ns / 6e10)} min`;
  return scaled(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]]);
}

export function size(bytes: number): string {
  if (bytes === 0) return "0";
  return scaled(bytes, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"], [1, "B"]]);
}

export function count(n: number): string {
  return Math.round(n).toString().replace(/\B(?=(\d{3})+(?!\d))/g, " ");
}

export function short(n: number): string {
  if (Math.abs(n) < 10_000) return Number.isInteger(n) ? count(n) : digits(n);
  return scaled(n, [[1e9, "G"], [1e6, "M"], [1e3, "k"]]);
}

export function value(v: number | null | undefined, unit: Unit): string {
  if (v === null || v === undefined) return "–";
  switch (unit) {
    case "ns":
      return time(v);
    case "bytes":
      return size(v);
    case "bytes-per-second":
      return `${size(v)}/s`;
    case "pages":
      return `${short(v)} pages`;
    case "per-second":
      return `${short(v)}/s`;
    case "share":
      return `${digits(v * 100)} %`;
    case "ms-per-s":
      return `${digits(v)} ms/s`;
    case "count":
      return short(v);
  }
}

// A moment of the run, such as 14.2 s, 3:07.5 or 1:02:03.
export function moment(t: number, fine = true): string {
  const sign = t < 0 ? "-" : "";
  const s = Math.abs(t);
  if (s < 60) return `${sign}${fine ? s.toFixed(s < 10 ? 3 : 2) : Number(s.toPrecision(6))} s`;
  const pad = (n: number) => String(Math.floor(n)).padStart(2, "0");
  const seconds = fine ? (s % 60).toFixed(1).padStart(4, "0") : pad(s % 60);
  return s < 3600 ? `${sign}${Math.floor(s / 60)}:${seconds}` : `${sign}${Math.floor(s / 3600)}:${pad((s / 60) % 60)}:${seconds}`;
}

export function clock(t: number, wallStartMs: number | null): string {
  if (wallStartMs === null) return "";
  return new Date(wallStartMs + t * 1000).toISOString().slice(11, 23);
}
