// Asks for the live part of the page again, unless somebody is typing in it. Part of resyft (Apache 2.0).
"use strict";
const live = document.getElementById("live");
async function refresh() {
  if (!live || document.hidden || live.contains(document.activeElement)) return;
  try {
    const answer = await fetch(live.dataset.from, { credentials: "same-origin", cache: "no-store" });
    if (!answer.ok) return;
    const open = [...live.querySelectorAll("details")].map((one) => one.open);
    const found = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (live.contains(document.activeElement)) return;
    live.replaceChildren(...found.body.childNodes);
    live.querySelectorAll("details").forEach((one, place) => { one.open = open[place] || false; });
  } catch (error) {
    // The desk was stopped; the page stays as it was.
  }
}
setInterval(refresh, 2500);
