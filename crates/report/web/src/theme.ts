// Colours are read from the style sheet, so that light and dark are defined in one place.

import type { Payload } from "./payload";

const OWN_COLOURS = 8;

export interface Theme {
  ink: string;
  paper: string;
  quiet: string;
  grid: string;
  alarm: string;
  floor: string;
  font: string;
}

export function variable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function theme(): Theme {
  return {
    ink: variable("--ink"),
    paper: variable("--paper"),
    quiet: variable("--quiet"),
    grid: variable("--grid"),
    alarm: variable("--alarm"),
    floor: variable("--floor"),
    font: `11px ${variable("--sans")}`,
  };
}

// The CSS class of a cause's colour, the same as in the table and bar of the Rust side.
export function causeClass(payload: Payload, cause: number | null): string {
  if (cause === null) return "ko";
  if (payload.causes[cause] === "unexplained") return "ku";
  return cause < OWN_COLOURS ? `k${cause}` : "ko";
}

export function causeColour(payload: Payload, cause: number | null): string {
  return variable(`--${causeClass(payload, cause)}`);
}

export function lineColour(place: number): string {
  return variable(`--k${place % OWN_COLOURS}`);
}

export function onThemeChange(redraw: () => void): void {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
