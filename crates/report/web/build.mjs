// Bundles the page: node build.mjs [DIR] writes report.js, report.css and report.csp (default: dist).
// The policy allows the script and the style by their hashes, so no other code in the page can run.
import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { build } from "esbuild";

const out = process.argv[2] ?? "dist";
await mkdir(out, { recursive: true });
await build({
  entryPoints: { report: "src/main.ts" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2020"],
  charset: "ascii",
  legalComments: "inline",
  logLevel: "warning",
});

async function hash(name) {
  const text = await readFile(join(out, name));
  return `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
}

const policy = [
  "default-src 'none'",
  `script-src ${await hash("report.js")}`,
  `style-src ${await hash("report.css")}`,
  "base-uri 'none'",
  "form-action 'none'",
];
await writeFile(join(out, "report.csp"), policy.join("; "));
