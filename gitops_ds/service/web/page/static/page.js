// What the page does better with scripts: live changes, a filter while typing, copies, a map for the keyboard. Without them all content is shown.
"use strict";
(() => {
  const root = document.documentElement;
  const $ = (id) => document.getElementById(id);
  const kept = { get: (k) => { try { return localStorage.getItem(k); } catch { return null; } }, set: (k, v) => { try { localStorage.setItem(k, v); } catch { /* private window */ } } };

  // The theme: as the system says, or the other one.
  const themes = ["auto", "light", "dark"];
  let theme = kept.get("theme") || "auto";
  const paint = () => {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    $("theme").querySelector(".value").textContent = theme;
  };
  $("theme").hidden = false;
  $("theme").addEventListener("click", () => { theme = themes[(themes.indexOf(theme) + 1) % 3]; kept.set("theme", theme); paint(); });
  paint();

  // Times as people say them; the exact one stays as the title.
  const units = [[60, "second"], [3600, "minute"], [86400, "hour"], [Infinity, "day"]];
  const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  let skew = 0; // milliseconds that the server's clock is ahead
  const ages = () => {
    for (const one of document.querySelectorAll("time")) {
      const seconds = (Date.now() + skew - Date.parse(one.dateTime)) / 1000;
      if (!(Math.abs(seconds) < 8640000)) continue;
      const place = units.findIndex(([until]) => Math.abs(seconds) < until);
      one.title = one.dateTime;
      one.textContent = relative.format(-Math.round(seconds / (place ? units[place - 1][0] : 1)), units[place][1]);
    }
  };

  // The filter: the rows on the page at once, then those that the server has. The field may be replaced, so it is looked up.
  const search = () => document.querySelector("[data-filter]");
  const filter = (field) => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of document.querySelectorAll(field.dataset.filter)) {
      const text = (row.dataset.words || row.textContent).toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  };
  // The address of the page with the filter: rows that the server left out come with it.
  const find = (field) => {
    const url = new URL(location.href);
    url.searchParams.delete("first");
    if (field.value) url.searchParams.set("q", field.value); else url.searchParams.delete("q");
    history.replaceState(null, "", url);
    refresh();
  };
  let pause = 0;
  document.addEventListener("input", (event) => {
    if (event.target !== search()) return;
    filter(event.target);
    clearTimeout(pause);
    pause = setTimeout(find, 200, event.target);
  });

  const copying = () => { for (const one of document.querySelectorAll(".copy[hidden]")) one.hidden = !navigator.clipboard; };
  const say = (text) => { $("announcement").textContent = text; };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
    try { await navigator.clipboard.writeText(button.dataset.copy); button.textContent = "Copied"; say("Copied"); } catch { button.textContent = "Select it"; }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });

  // The map: one stop for Tab, arrow keys inside, a tip under the pointer.
  const states = { o: "an earlier revision, available", p: "starting", x: "broken: the template is the cause", w: "broken: the node is the cause", u: "runs on an ineligible node", n: "node is not eligible" };
  const namesOf = (box) => box.names || (box.names = box.dataset.names.split(" "));
  const at = (square) => {
    const box = square.parentNode, key = $("key").dataset, found = { node: namesOf(box)[[].indexOf.call(box.children, square)], words: "up to date and available", commit: "", reason: "" };
    let letter = "a";
    for (const code of square.classList) {
      if (states[code]) { found.words = states[code]; if (code !== "o") letter = letter === "a" ? "" : letter; } else if (/^[a-g]$/.test(code)) letter = code;
      else if (/^r\d+$/.test(code)) found.reason = key.reasons.split(" ")[code.slice(1)] || "";
    }
    found.commit = (key.commits.split(" ").find((one) => one.startsWith(letter + "=")) || "").slice(2);
    return found;
  };
  const text = (found) => [found.words, found.reason, found.commit && "commit " + found.commit].filter(Boolean).join(" · ");
  let stop = null;
  const make = (square) => {
    if (stop && stop !== square) { stop.removeAttribute("tabindex"); stop.removeAttribute("role"); stop.removeAttribute("aria-label"); }
    stop = square;
    if (!square) return;
    const found = at(square);
    square.tabIndex = 0;
    square.setAttribute("role", "link");
    square.setAttribute("aria-label", found.node + ": " + text(found));
  };
  const tip = document.createElement("div");
  tip.id = "tip"; tip.hidden = true; tip.setAttribute("aria-hidden", "true");
  const show = (square) => {
    const found = at(square), place = square.getBoundingClientRect();
    const name = document.createElement("b");
    name.textContent = found.node;
    tip.replaceChildren(name, text(found));
    tip.hidden = false;
    const left = Math.min(place.left, root.clientWidth - tip.offsetWidth - 8);
    tip.style.left = Math.max(4, left) + scrollX + "px";
    tip.style.top = place.bottom + scrollY + 6 + "px";
  };
  const open = (square) => { location.href = $("map").dataset.href + encodeURIComponent(at(square).node); };
  const squareOf = (event) => { const one = event.target; return one.localName === "i" && one.parentNode.classList.contains("cells") ? one : null; };
  const walk = (square, key) => {
    const all = [...document.querySelectorAll(".cells i")], place = all.indexOf(square);
    if (key === "Home" || key === "End") return key === "Home" ? all[0] : all[all.length - 1];
    if (key === "ArrowLeft" || key === "ArrowRight") return all[place + (key === "ArrowLeft" ? -1 : 1)];
    const here = square.getBoundingClientRect(), down = key === "ArrowDown" ? 1 : -1;
    let best = null, top = 0, far = 0;
    for (let i = place + down; all[i]; i += down) {
      const there = all[i].getBoundingClientRect();
      if ((there.top - here.top) * down <= 1) continue;
      if (best && (there.top - top) * down > 1) break;
      const away = Math.abs(there.left - here.left);
      if (!best || away < far) { best = all[i]; far = away; top = there.top; }
    }
    return best;
  };
  const wake = () => {
    const map = $("map");
    if (!map || map.dataset.on) return;
    map.dataset.on = "1";
    for (const box of map.querySelectorAll(".cells")) { box.dataset.on = "1"; box.setAttribute("role", "group"); }
    make(map.querySelector(".cells i"));
    map.addEventListener("pointerover", (event) => { const one = squareOf(event); if (one) show(one); else tip.hidden = true; });
    map.addEventListener("pointerleave", () => { tip.hidden = true; });
    map.addEventListener("click", (event) => { const one = squareOf(event); if (one) open(one); });
    map.addEventListener("focusin", (event) => { const one = squareOf(event); if (one) show(one); });
    map.addEventListener("focusout", () => { tip.hidden = true; });
    map.addEventListener("keydown", (event) => {
      const one = squareOf(event);
      if (!one || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Enter") { open(one); return; }
      if (event.key === "Escape") { tip.hidden = true; return; }
      if (!/^(Arrow(Left|Right|Up|Down)|Home|End)$/.test(event.key)) return;
      event.preventDefault();
      const next = walk(one, event.key);
      if (next) { make(next); next.focus(); }
    });
  };

  const dress = () => { ages(); copying(); wake(); const field = search(); if (field && field.value) filter(field); };

  // What changed since, and only that. A piece that holds the focus keeps it.
  const within = (piece, change) => {
    const stops = (one) => [...one.querySelectorAll("a,button,summary,[tabindex]")];
    const held = piece.contains(document.activeElement) ? document.activeElement : null;
    const html = held && held.outerHTML, number = held && stops(piece).indexOf(held);
    const opened = new Map([...piece.querySelectorAll("details[id]")].map((one) => [one.id, one.open]));
    const fresh = change();
    for (const one of fresh.querySelectorAll("details[id]")) if (opened.has(one.id)) one.open = opened.get(one.id);
    if (!held || held.isConnected) return;
    const all = stops(fresh), next = held === piece ? fresh : (held.id && $(held.id)) || all.find((one) => one.outerHTML === html) || all[number];
    if (next) next.focus({ preventScroll: true });
  };
  const place = (id, html) => {
    const old = $(id);
    if (!old) return;
    const holder = document.createElement("template");
    holder.innerHTML = html;
    within(old, () => { const fresh = holder.content.firstElementChild; old.replaceWith(fresh); return fresh; });
  };
  const update = (news) => {
    const began = performance.now();
    for (const [id, html] of Object.entries(news.pieces || {})) place(id, html);
    if (news.order) {
      const held = document.activeElement;
      for (const id of news.order) { const row = $(id); if (row) row.parentNode.append(row); }
      if (held && held !== document.activeElement) held.focus({ preventScroll: true });
    }
    if (news.cells) {
      const all = document.querySelectorAll(".cells i");
      for (const [number, code] of news.cells) {
        const square = all[number];
        square.className = code;
        square.classList.add("hit");
        if (square === stop) make(square);
      }
      setTimeout(() => { for (const one of document.querySelectorAll(".cells i.hit")) one.classList.remove("hit"); }, 2000);
    }
    dress();
    if (news.words) say(news.words);
    document.body.dataset.updated = (Number(document.body.dataset.updated) || 0) + 1;
    performance.measure("update", { start: began });
  };
  // All of main, except the field of the filter: it depends on the address alone, and keeps its caret.
  const replace = (fresh) => {
    const main = $("main"), form = main.querySelector("form.filter"), nodes = [...fresh.getElementById("main").childNodes];
    const place = nodes.findIndex((node) => node.localName === "form");
    within(main, () => {
      for (const node of [...main.childNodes]) if (node !== form) node.remove();
      if (form) { form.before(...nodes.slice(0, place)); form.after(...nodes.slice(place + 1)); } else main.append(...nodes);
      return main;
    });
    stop = null;
    dress();
    document.body.dataset.updated = (Number(document.body.dataset.updated) || 0) + 1;
  };
  // The page is loaded again: the last request wins, and the stream continues from what is shown.
  let loading = false, outdated = false;
  const refresh = async () => {
    outdated = true;
    if (loading) return;
    loading = true;
    try {
      while (outdated) {
        outdated = false;
        const answer = await fetch(location.href, { credentials: "same-origin", redirect: "manual" });
        if (answer.status >= 500) throw new Error(answer.statusText);
        if (!answer.ok) { location.reload(); return; } // signed out, or the object is deleted
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (outdated) continue;
        replace(fresh);
        connect(fresh.body.dataset.live);
      }
    } catch { if (stream) stream.close(); unlinked(); } finally { loading = false; }
  };
  const RETRY = 5000; // milliseconds
  let stream = null;
  let retry = 0;
  // The browser connects a cut stream again, but not after a 503, a 401 or a redirection to a sign-in: then the page loads again.
  const unlinked = () => {
    const link = $("link");
    link.textContent = "not connected";
    link.classList.add("off");
    retry ||= setTimeout(() => { retry = 0; if (!stream || stream.readyState !== EventSource.OPEN) refresh(); }, RETRY);
  };
  const connect = (live) => {
    if (stream) stream.close();
    stream = null;
    if (!live || !window.EventSource) return;
    const link = $("link");
    stream = new EventSource(live);
    link.hidden = false;
    if (!link.textContent) link.textContent = "connecting";
    stream.onopen = () => { link.textContent = "live"; link.classList.remove("off"); };
    stream.onerror = unlinked;
    stream.addEventListener("time", (event) => { skew = JSON.parse(event.data).now * 1000 - Date.now(); ages(); });
    stream.addEventListener("change", (event) => update(JSON.parse(event.data)));
    stream.addEventListener("whole", () => { stream.close(); refresh(); });
    stream.addEventListener("over", () => { stream.close(); location.reload(); });
  };
  connect(document.body.dataset.live);
  addEventListener("pagehide", () => { if (stream) stream.close(); });
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  // A wall: the whole screen.
  const full = $("full");
  if (full && root.requestFullscreen) {
    full.hidden = false;
    full.addEventListener("click", () => { if (document.fullscreenElement) document.exitFullscreen(); else root.requestFullscreen(); });
  }

  // Keys, and the list of them.
  const keys = $("keys");
  $("help").hidden = false;
  $("help").addEventListener("click", () => keys.showModal());
  let before = "";
  const base = document.querySelector(".brand").href;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || keys.open || /^(input|textarea|select)$/i.test(event.target.localName)) return;
    const field = search();
    if (event.key === "/" && field) { event.preventDefault(); field.focus(); field.select(); }
    if (event.key === "?") { event.preventDefault(); keys.showModal(); }
    const way = { a: "", n: "nodes", e: "events", c: "clusters", w: "wall" }[event.key];
    if (before === "g" && way !== undefined) location.href = new URL(way, base).href;
    before = event.key;
  });

  document.body.append(tip);
  dress();
  setInterval(ages, 30000);
  performance.mark("ready");
})();
