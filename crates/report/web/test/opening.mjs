// Measures how long pages take to open in headless Chromium: node test/opening.mjs DIR [ROUNDS]. For each page of the
// directory it takes the time from the start of the navigation until two frames after the charts are drawn, by the
// page's clock.
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const folder = process.argv[2];
const rounds = Number(process.argv[3] ?? 5);
const candidates = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = candidates.find((path) => path && existsSync(path));
if (!folder || !executablePath) {
  console.error("usage: node test/opening.mjs DIR [ROUNDS], with Chromium installed or CHROMIUM set to its path");
  process.exit(2);
}

const middle = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
const browser = await chromium.launch({ executablePath, headless: true, args: ["--no-sandbox", "--disable-gpu"] });
try {
  for (const name of (await readdir(folder)).filter((file) => file.endsWith(".html")).sort()) {
    const path = join(folder, name);
    const seen = [];
    for (let round = 0; round < rounds; round += 1) {
      const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
      await page.goto(pathToFileURL(path).href);
      await page.waitForSelector("html[data-ready=yes]");
      seen.push(await page.evaluate(() => new Promise((done) => {
        requestAnimationFrame(() => requestAnimationFrame(() => done({
          drawn: performance.now(),
          charts: [...document.querySelectorAll(".plot canvas")].length,
          rows: document.querySelectorAll("#call-table tbody tr").length,
        })));
      })));
      await page.close();
    }
    const times = seen.map((one) => one.drawn);
    const { charts, rows } = seen[0];
    const bytes = (await stat(path)).size;
    console.log(`${name}: ${(bytes / 1e6).toFixed(2)} MB, ${charts} charts, ${rows} table rows, drawn after `
      + `${middle(times).toFixed(0)} ms (median of ${rounds}, ${Math.min(...times).toFixed(0)} to ${Math.max(...times).toFixed(0)})`);
  }
} finally {
  await browser.close();
}
