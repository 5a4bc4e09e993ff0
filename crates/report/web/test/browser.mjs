// Opens each page in headless Chromium: node test/browser.mjs DIR [--shots DIR].
// Fails on a console error, a request outside the page, a blank chart, overflow on a phone, a call that does not open
// by keyboard, a dark mode that is not dark, or an hour that takes long to open.
import assert from "node:assert/strict";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const folder = process.argv[2];
const shots = process.argv[3] === "--shots" ? process.argv[4] : null;
assert(folder, "usage: node test/browser.mjs DIR [--shots DIR]");

const candidates = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = candidates.find((path) => path && existsSync(path));
assert(executablePath, "no Chromium: apt-get install chromium, or set CHROMIUM to its path");

const profile = await mkdtemp(join(tmpdir(), "flatwater-chromium-"));
const quietly = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const browser = await chromium.launchPersistentContext(profile, {
  executablePath,
  headless: true,
  args: quietly,
  viewport: { width: 1280, height: 900 },
});

let checks = 0;
function check(condition, what) {
  assert(condition, what);
  checks += 1;
}

// A new tab, in which any error or request fails the test.
async function open(name, { width = 1280, height = 900, dark = false, hash = "", script = true } = {}) {
  const page = await browser.newPage();
  const troubles = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) troubles.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => troubles.push(`error: ${error}`));
  page.on("request", (request) => {
    if (!request.url().startsWith("file:") || !request.url().split("#")[0].endsWith(`/${name}.html`)) {
      troubles.push(`request: ${request.url()}`);
    }
  });
  await page.setViewportSize({ width, height });
  await page.emulateMedia({ colorScheme: dark ? "dark" : "light" });
  const began = performance.now();
  page.on("dialog", (dialog) => (troubles.push(`dialog: ${dialog.message()}`), dialog.dismiss()));
  await page.goto(pathToFileURL(join(folder, `${name}.html`)).href + hash);
  if (script) await page.waitForSelector("html[data-ready=yes]", { timeout: 20000 });
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  return { page, troubles, ms: performance.now() - began };
}

async function done(name, { page, troubles }) {
  check(troubles.length === 0, `${name}: ${troubles.join("; ")}`);
  await page.close();
}

async function shot(page, name, fullPage = true) {
  if (shots) await page.screenshot({ path: join(shots, `${name}.png`), fullPage });
}

// Share of a chart's plotting area that is neither background nor transparent.
function inked(page) {
  return page.$$eval(".plot canvas", (canvases) =>
    canvases.map((canvas) => {
      const context = canvas.getContext("2d");
      const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
      const colours = new Map();
      for (let at = 0; at < data.length; at += 4) {
        const key = (data[at] << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3];
        colours.set(key, (colours.get(key) ?? 0) + 1);
      }
      const most = Math.max(...colours.values());
      return 1 - most / (data.length / 4);
    }),
  );
}

async function checkFullCgroup() {
  const tab = await open("full-cgroup");
  const { page } = tab;
  await shot(page, "full-cgroup");
  const ink = await inked(page);
  check(ink.length >= 7, `seven charts, not ${ink.length}`);
  for (const [place, share] of ink.entries()) check(share > 0.005, `chart ${place} is blank (${share})`);
  const first = await page.$eval("main section", (section) => section.id);
  check(first === "findings", "findings come first");

  // A cursor on one chart moves the cursors of all.
  await page.locator("#chart-latency .u-over").hover({ position: { x: 300, y: 60 } });
  const told = await page.$$eval("figure", (figures) =>
    figures.filter((f) => [...f.querySelectorAll(".legend .value")].some((v) => v.textContent !== "")).length);
  check(told >= 7, `the cursor is synced: ${told} legends show a value`);

  // A drag zooms every chart; the button resets the zoom.
  const over = await page.locator("#chart-latency .u-over").boundingBox();
  await page.mouse.move(over.x + 200, over.y + 50);
  await page.mouse.down();
  await page.mouse.move(over.x + 400, over.y + 60, { steps: 4 });
  await page.mouse.up();
  const showAll = page.getByRole("button", { name: "Show all" });
  check(await showAll.isEnabled(), "a drag zooms in");
  await showAll.click();
  check(await showAll.isDisabled(), "Show all resets");

  // A call is named beside the cursor on the chart under the pointer, and shaded on every chart.
  const called = await page.evaluate(() => {
    const { calls } = JSON.parse(document.querySelector("#payload").textContent);
    return calls.rows.filter((row) => !row.neighbour).sort((a, b) => b.ns - a.ns)[0];
  });
  const room = await page.locator("#chart-dirty .u-over").boundingBox();
  await page.locator("#chart-dirty .u-over").hover({ position: { x: ((called.t + called.ns / 2e9) / 30) * room.width, y: 40 } });
  const tip = await page.locator("#chart-dirty .tip").innerText();
  check(/^(write|fsync)\(\) of journal-0 by journal-0 at .* took 39.3 ms/.test(tip), `the longest call is named: ${tip}`);
  check((await page.locator(".tip:visible").count()) === 1, "one chart names the call");
  check((await page.locator(".call-band:visible").count()) === ink.length, "every chart shades the call");
  await shot(page, "call-named", false);
  await page.mouse.move(2, 2);
  // n goes to the next call from the keyboard.
  await page.locator("#chart-dirty .plot").focus();
  await page.keyboard.press("n");
  check((await page.locator("#chart-dirty .tip").innerText()).includes("took"), "n names the next call");
  check((await page.locator(".readout").innerText()).includes("took"), "a screen reader hears the call");

  // A legend button hides and shows its line.
  const button = page.locator("#chart-lost .legend button").first();
  await button.click();
  check((await button.getAttribute("aria-pressed")) === "false", "the legend hides a line");
  await button.click();

  // A heading sorts, by keyboard.
  const took = page.getByRole("button", { name: "took" });
  await took.focus();
  await page.keyboard.press("Enter");
  check((await page.locator("th[aria-sort=ascending]").innerText()).startsWith("took"), "Enter sorts");
  await page.keyboard.press("Enter");
  check((await page.locator("th[aria-sort=descending]").count()) === 1, "a second Enter reverses the order");

  // A call opens by keyboard: Tab from the heading reaches the first row's button.
  for (let tabs = 0; tabs < 12; tabs += 1) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(() => document.activeElement?.classList.contains("open"))) break;
  }
  await page.keyboard.press("Enter");
  check((await page.locator("button.open[aria-expanded=true]").count()) === 1, "Enter opens a call");
  check((await page.locator("tr.detail:not([hidden]) .timeline rect").count()) >= 2, "its parts are drawn");
  await page.locator("tr.detail:not([hidden]) .stack-of summary").first().focus();
  await page.keyboard.press("Enter");
  check((await page.locator(".stack-of[open] .stack li").count()) > 4, "its stack unfolds");
  await page.locator(".call-detail").scrollIntoViewIfNeeded();
  await shot(page, "call-detail", false);
  await page.getByRole("button", { name: "Show in the charts" }).click();
  check(await showAll.isEnabled(), "a call shows itself in the charts");
  await shot(page, "zoomed", false);
  await done("full-cgroup", tab);
}

// The address holds the range; any other fragment does nothing.
async function checkFragment() {
  const tab = await open("full-cgroup", { hash: "#t=10,12.5" });
  const { page } = tab;
  const range = async () => (await page.locator(".readout").innerText()).replaceAll("\u00a0", " ");
  const rest = () => page.waitForTimeout(250);
  await rest();
  check((await range()) === "10.00 s – 12.50 s", `the range of the address is shown: ${await range()}`);
  const top = await page.$eval("#charts", (section) => section.getBoundingClientRect().top);
  check(top < 200, "the page opens at the charts");
  check((await page.locator(".range-link").getAttribute("href")) === "#t=10,12.5", "the link has the range");
  await page.locator("#chart-latency .plot").focus();
  await page.keyboard.press("-");
  await rest();
  const written = await page.evaluate(() => location.hash);
  check(/^#t=[\d.]+,[\d.]+$/.test(written) && written !== "#t=10,12.5", `a zoom changes the address: ${written}`);
  const before = await range();
  await page.reload();
  await page.waitForSelector("html[data-ready=yes]");
  check((await range()) === before, `a reload restores ${before}: ${await range()}`);
  await page.keyboard.press("Tab");
  await page.getByRole("button", { name: "Show all" }).click();
  await rest();
  check((await page.evaluate(() => location.hash)) === "", "the whole recording needs no fragment");
  check((await page.locator(".range-link:visible").count()) === 0, "and no link");
  const all = await range();
  const hostile = ["#t=5,5", "#t=9,2", "#t=-1,2", "#t=1e3,2e3", "#t=NaN,Infinity", "#t=31,99", "#t=1,2,3", "#t=", "#t=1",
    "#<img src=x onerror=alert(1)>", "#t=1,2<script>alert(1)</script>", "#javascript:alert(1)", "#%74=1,2", "#__proto__",
    `#t=${"9".repeat(100000)},2`, `#t=${"1.".repeat(50000)}`, "#t=1,2%00", "#t=\u0661,\u0662"];
  for (const hash of hostile) {
    await page.evaluate((text) => (location.hash = text), hash);
    await page.evaluate(() => new Promise((done) => setTimeout(done)));
    check((await range()) === all, `${hash.slice(0, 40)} is ignored: ${await range()}`);
  }
  check((await page.locator("img").count()) === 0 && (await page.locator("script").count()) === 2, "no markup from the address");
  await page.evaluate(() => (location.hash = "#t=29,1000"));
  await page.waitForFunction((whole) => document.querySelector(".readout").textContent !== whole, all);
  check((await range()) === "29.00 s – 30.00 s", `a range ends with the recording: ${await range()}`);
  await done("full-cgroup", tab);
}

async function checkPhoneAndDark() {
  for (const name of ["full-cgroup", "quiet", "imported", "hostile", "long", "who-waited", "compared"]) {
    for (const dark of name === "full-cgroup" ? [false, true] : [false]) {
      const tab = await open(name, { width: 390, height: 844, dark, script: name !== "compared" });
      const wide = await tab.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      check(wide <= 0, `${name} overflows a phone by ${wide} px`);
      if (name === "who-waited") {
        const first = await tab.page.locator("#victims tbody tr").first().locator("td.n").first().boundingBox();
        check(first.x + first.width <= 390, "the numbers of the victims are on the screen");
      }
      await shot(tab.page, `${name}-phone${dark ? "-dark" : ""}`);
      await done(name, tab);
    }
  }
  const tab = await open("full-cgroup", { dark: true });
  const light = await tab.page.evaluate(() => {
    const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
    return (r + g + b) / 3;
  });
  check(light < 60, `dark mode is dark, not ${light}`);
  for (const share of await inked(tab.page)) check(share > 0.005, "charts are drawn in dark mode");
  await shot(tab.page, "full-cgroup-dark");
  // The colours follow the setting without a reload.
  await tab.page.emulateMedia({ colorScheme: "light" });
  await tab.page.waitForTimeout(100);
  await done("dark", tab);
}

async function checkHour() {
  const tab = await open("one-hour");
  // The aim is 2 s on an idle machine; the limit allows for other tests on a busy one.
  console.log(`one hour at 10 Hz opened in ${tab.ms.toFixed(0)} ms`);
  check(tab.ms < 10000, `an hour opens in ${tab.ms} ms`);
  check((await tab.page.locator("#call-table").innerText()).includes("left out"), "the page says how many calls are left out");
  await shot(tab.page, "one-hour");
  await done("one-hour", tab);
}

async function checkRest() {
  const quiet = await open("quiet");
  check((await quiet.page.locator("#call-table").innerText()).includes("No call took"), "no slow call is a result");
  const lost = await quiet.page.locator(".collapsed #chart-lost").innerText();
  check(lost === "Stall time by cause: 0: no call took 1 ms or longer.", `a chart of zeros is one line: ${lost}`);
  check((await quiet.page.locator("#workload").innerText()).includes("6582 - Delayed 4806 ms."), "workload tables");
  await shot(quiet.page, "quiet");
  await done("quiet", quiet);

  const imported = await open("imported");
  check((await imported.page.locator("#chart-headroom").count()) === 0, "no empty chart without data in the log");
  check((await imported.page.locator(".plot canvas").count()) > 0, "data in the log is drawn");
  const machine = await imported.page.locator("#machine").innerText();
  check(machine.includes("vmstat prints no watermarks"), `the gap is shown once: ${machine}`);
  await shot(imported.page, "imported");
  await done("imported", imported);

  const waited = await open("who-waited");
  const lead = await waited.page.locator(".lead").innerText();
  check(lead.includes("34 MiB of dd (pid 812, cgroup /jobs/backup)"), `the page starts with who made the calls wait: ${lead}`);
  check((await waited.page.locator("#victims tbody tr").count()) === 2, "two groups of victims");
  check((await waited.page.locator("#chart-queue canvas").count()) === 1, "the queue by owner is drawn");
  await waited.page.locator("#call-table button.open").first().click();
  const links = await waited.page.locator(".chain li").allInnerTexts();
  check(links.length > 0 && links.at(-1).includes("of dd"), `the chain ends with dd: ${links.join(" | ")}`);
  await shot(waited.page, "who-waited");
  await done("who-waited", waited);

  const hostile = await open("hostile");
  check((await hostile.page.title()).startsWith("</script>"), "the name is text");
  check((await hostile.page.locator("img").count()) === 0, "no markup from a recording");
  check((await hostile.page.locator("script").count()) === 2, "no script from a recording");
  await done("hostile", hostile);

  const empty = await open("empty");
  check((await empty.page.locator(".plot canvas").count()) === 0, "an empty recording has no charts");
  check((await empty.page.locator(".collapsed li").count()) > 3, "a line says for each chart that nothing was recorded");
  check((await empty.page.locator(".collapsed").innerText()).includes("Not recorded. "), "missing is not zero");
  await shot(empty.page, "empty");
  await done("empty", empty);
}

try {
  const pages = await readdir(folder);
  assert(pages.includes("full-cgroup.html"), `no pages in ${folder}`);
  await checkFullCgroup();
  await checkFragment();
  await checkPhoneAndDark();
  await checkHour();
  await checkRest();
  console.log(`${checks} checks passed`);
} finally {
  await browser.close();
  await rm(profile, { recursive: true, force: true });
}
