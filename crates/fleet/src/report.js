"use strict";
const GREY = 255, get = id => document.getElementById(id);
const {hours, from, hosts, cells: encoded} = JSON.parse(get("data").textContent);
const cells = Uint8Array.from(atob(encoded), c => c.charCodeAt(0));
const map = get("map"), where = get("where");
const colour = v => {
  const t = Math.min(v, 250) / 250;
  return v === GREY ? [176, 184, 192] : v === 0 ? [255, 255, 255] : [255 - 60 * t * t, 245 * (1 - t), 200 * (1 - t) ** 3];
};
const css = v => `rgb(${colour(v).map(Math.round).join(",")})`;
const time = hour => new Date((from + hour * 3600) * 1000).toISOString().slice(0, 16).replace("T", " ");
// A line of the picture is one host, or the worst of several if there are more hosts than lines.
const lines = Math.max(Math.min(hosts.length, 700), 1), first = line => Math.ceil(line * hosts.length / lines);
const worst = (line, hour) => {
  let most = -1;
  for (let row = first(line); row < first(line + 1); row++) {
    const v = cells[row * hours + hour];
    if (v !== GREY && v > most) most = v;
  }
  return most < 0 ? GREY : most;
};
map.width = Math.max(hours, 1); map.height = lines;
map.style.height = Math.min(700, Math.max(80, lines * 3)) + "px";
const context = map.getContext("2d"), image = context.createImageData(map.width, map.height);
for (let line = 0; line < lines; line++)
  for (let hour = 0; hour < hours; hour++) image.data.set([...colour(worst(line, hour)), 255], 4 * (line * hours + hour));
context.putImageData(image, 0, 0);
if (hosts.length > lines) get("each").textContent = `Each line is the worst of ${Math.ceil(hosts.length / lines)} hosts`;
const key = [[0, "nothing stalled"], [1, "1 us per second"], [84, "100 us"], [125, "1 ms"], [167, "10 ms"], [208, "100 ms"], [250, "1 s or more"], [GREY, "not observed"]];
for (const [v, text] of key) {
  const span = document.createElement("span"), box = document.createElement("i");
  box.style.background = css(v);
  span.append(box, text);
  get("scale").append(span);
}
const step = [1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 720].find(step => hours / step <= 8) || 1440;
for (let hour = 0; hour < hours; hour++) {
  if ((from / 3600 + hour) % step) continue;
  const span = document.createElement("span");
  span.textContent = step < 24 ? time(hour).slice(5) : time(hour).slice(0, 10);
  span.style.left = 100 * hour / hours + "%";
  if (hour / hours < 0.93) get("hours").append(span);
}
const at = event => {
  const box = map.getBoundingClientRect();
  const clamp = (value, most) => Math.max(0, Math.min(most - 1, Math.floor(value)));
  return [clamp((event.clientX - box.left) / box.width * hours, hours), clamp((event.clientY - box.top) / box.height * lines, lines)];
};
const names = line => hosts.slice(first(line), first(line + 1));
map.addEventListener("mousemove", event => {
  const [hour, line] = at(event), v = worst(line, hour), of = names(line);
  if (!of.length) return;
  const rate = v === GREY ? "not observed" : v === 0 ? "nothing stalled" : "about " + (10 ** ((v - 1) / 249 * 6) / 1000).toPrecision(2) + " ms per second";
  where.textContent = (of.length > 1 ? `${of[0]} and ${of.length - 1} more, the worst` : of[0]) + `, ${time(hour)} UTC: ${rate}`;
});
const show = host => {
  let count = 0;
  for (const row of document.querySelectorAll("#recordings tr[data-host]")) {
    row.hidden = host !== null && row.dataset.host !== host;
    count += !row.hidden;
  }
  get("shown").replaceChildren();
  if (host === null) return;
  const all = document.createElement("button");
  all.textContent = "all hosts";
  all.addEventListener("click", () => show(null));
  get("shown").append(`${count} of ${host}. `, all);
};
map.addEventListener("click", event => {
  const of = names(at(event)[1]);
  get("near").replaceChildren(...of.map(host => {
    const button = document.createElement("button");
    button.textContent = host;
    button.addEventListener("click", () => { show(host); get("shown").scrollIntoView(); });
    return button;
  }));
  if (of.length) show(of[0]);
});
