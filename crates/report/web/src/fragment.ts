// The range of the charts in the page's address, as in Media Fragments: #t=12.5,14.25 in seconds since the start.
// Any other fragment is a place on the page, or is ignored.

const LONGEST = 48;
const RANGE = /^#t=(\d{1,9}(?:\.\d{1,6})?),(\d{1,9}(?:\.\d{1,6})?)$/;

export function parseRange(hash: string, end: number): [number, number] | null {
  const found = hash.length <= LONGEST ? RANGE.exec(hash) : null;
  if (!found) return null;
  const [from, to] = [Number(found[1]), Number(found[2])];
  return from < to && from < end ? [from, Math.min(to, end)] : null;
}

export function formatRange(from: number, to: number): string {
  const seconds = (t: number) => String(Number(Math.max(t, 0).toFixed(6)));
  return `#t=${seconds(from)},${seconds(to)}`;
}

// Writes the range into the address without an entry in the history, or removes an earlier range. Browsers limit how
// often a page may do so, and some refuse it for files: then only the link on the page has the range.
export function writeRange(range: string | null): void {
  if (range === null && !location.hash.startsWith("#t=")) return;
  try {
    history.replaceState(null, "", range ?? location.href.split("#")[0]);
  } catch {
    return;
  }
}
