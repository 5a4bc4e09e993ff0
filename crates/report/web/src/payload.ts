// The page's data, with the same fields as src/report/html/payload.rs (a test compares them).
// Times are seconds since the recording's start, durations ns; null is a value that was not read.

export interface Payload {
  version: number;
  duration_s: number;
  wall_start_ms: number | null;
  causes: string[];
  charts: Chart[];
  marks: Mark[];
  calls: Calls;
}

export interface Chart {
  id: string;
  title: string;
  about: string;
  choice: string;
  unit: Unit;
  right_unit: Unit | null;
  scale: Scale;
  missing: string | null;
  zero: string | null;
  t: number[];
  holes: [number, number][];
  lines: Line[];
  levels: Level[];
}

export type Unit = "ns" | "bytes" | "pages" | "per-second" | "bytes-per-second" | "share" | "ms-per-s" | "count";

export type Scale = "linear" | "log" | "signed-log";

export type Look =
  | "plain"
  | "strong"
  | "faint"
  | "dashed"
  | "limit"
  | "step"
  | "strong-step"
  | "faint-step"
  | "dashed-step"
  | "points"
  | "stack";

export interface Line {
  name: string;
  look: Look;
  cause: number | null;
  right: boolean;
  y: (number | null)[];
}

export interface Level {
  name: string;
  value: number;
  shade_below: boolean;
}

export interface Mark {
  t: number;
  kind: string;
  text: string;
}

export interface Calls {
  missing: string | null;
  total: number;
  left_out: number;
  own_left_out: number;
  left_out_ns_max: number | null;
  threads: string[];
  ops: string[];
  files: string[];
  texts: string[];
  symbols: string[];
  stacks: number[][];
  rows: CallRow[];
}

export interface CallRow {
  t: number;
  ns: number;
  late_ns: number | null;
  op: number;
  thread: number;
  tid: number;
  file: number | null;
  bytes: number | null;
  offset_bytes: number | null;
  cause: number;
  cause_ns: number;
  after_exit_ns: number;
  damaged: boolean;
  still_under_way: boolean;
  failed: string | null;
  neighbour: boolean;
  parts: PartRow[];
  parts_left_out: number;
  chain: LinkRow[];
}

// Depth, offset from the call's start (ns), ns, kind (0 thread, 1 device, 2 timer or interrupt, 3 unknown), text.
export type LinkRow = [number, number, number, number, number];

// Offset (ns), ns, cause, basis (0 exact, 1 sampled, 2 inferred), stack or -1, number of merged intervals.
export type PartRow = [number, number, number, number, number, number];
