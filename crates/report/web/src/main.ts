// Draws the page from the data that src/report/html/payload.rs wrote into it. Loads and stores nothing.

import "uplot/dist/uPlot.min.css";
import "./report.css";
import { Board } from "./board";
import { CallTable } from "./calls";
import { h, place } from "./dom";
import type { Payload } from "./payload";

function start(): void {
  const data = place("payload");
  const [charts, calls] = [place("chart-board"), place("call-table")];
  if (!data) return;
  const payload = JSON.parse(data.textContent ?? "") as Payload;
  // The page of an imported log lacks the parts for which the log has no data.
  const board = charts ? new Board(payload, charts) : null;
  const show = (from: number, to: number) => board?.show(from, to);
  if (calls) new CallTable(payload, calls, show);
  for (const span of document.querySelectorAll<HTMLElement>("span.moment[data-t]")) {
    if (!board) break;
    const t = Number(span.dataset["t"]);
    span.replaceWith(h("button", { type: "button", class: "moment", click: () => show(t, t) }, span.textContent ?? ""));
  }
  document.documentElement.dataset["ready"] = "yes";
}

start();
