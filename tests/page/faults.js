// What a checker of accessibility looks for first, by the numbers of https://www.w3.org/TR/WCAG22/
() => {
  const faults = [], seen = (e) => e.getClientRects().length && getComputedStyle(e).visibility !== "hidden";
  const named = (e) => (e.getAttribute("aria-label") || (e.getAttribute("aria-labelledby") || "").split(" ").map((id) => (document.getElementById(id) || {}).textContent || "").join("") || e.textContent || e.title || "").trim();
  if (!document.documentElement.lang) faults.push("3.1.1 no language");
  for (const [tag, count] of [["main", 1], ["h1", 1], ["header", 1], ["nav", 0]])
    if (document.querySelectorAll("body " + tag).length < count) faults.push("1.3.1 no " + tag);
  if (document.querySelectorAll("h1").length !== 1) faults.push("2.4.6 not one h1");
  let level = 0;
  for (const h of document.querySelectorAll("h1,h2,h3,h4")) { const n = +h.tagName[1]; if (n > level + 1) faults.push("1.3.1 heading skips: " + h.textContent); level = n; }
  for (const e of document.querySelectorAll("a,button,summary,[role=link],[role=region],[role=img],[role=group]")) if (seen(e) && !named(e)) faults.push("4.1.2 no name: " + e.outerHTML.slice(0, 120));
  for (const e of document.querySelectorAll("input:not([type=hidden])")) if (!e.labels.length) faults.push("3.3.2 no label: " + e.id);
  for (const t of document.querySelectorAll("main table:not(.fields)")) { if (!t.caption) faults.push("1.3.1 no caption"); if (!t.querySelector("th[scope=col]")) faults.push("1.3.1 no header cells"); }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id), twice = ids.filter((id, i) => ids.indexOf(id) !== i);
  if (twice.length) faults.push("4.1.1 id twice: " + twice);
  const rgb = (text) => { const p = text.match(/[\d.]+/g).map(Number); return p.length > 3 ? p : [...p, 1]; };
  const light = ([r, g, b]) => { const f = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 0.99) return c; } return [255, 255, 255, 1]; };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !seen(e) || e.closest(".unseen,.skip,script,style,#tip")) continue;
    const style = getComputedStyle(e), a = light(rgb(style.color)), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && +style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) faults.push("1.4.3 contrast " + ratio.toFixed(2) + ": " + walk.currentNode.data.trim().slice(0, 40) + " in " + e.className);
  }
  return [...new Set(faults)];
}
