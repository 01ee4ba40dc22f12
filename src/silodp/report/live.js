
// Asks the page's own server how it goes; when something was finished, the whole page is new.
(async () => {
  let misses = 0, stages = document.getElementById("live").dataset.stages;
  const warn = (message) => {
    const now = document.getElementById("live");
    let note = now.querySelector("[data-trouble]");
    if (!note) {
      note = document.createElement("p");
      note.className = "warning";
      note.dataset.trouble = "";
      now.prepend(note);
      document.getElementById("announced").textContent = message;
    }
    note.textContent = message;
  };
  for (;;) {
    await new Promise((wake) => setTimeout(wake, document.hidden ? 5000 : 1000));
    const now = document.getElementById("live");
    try {
      const answer = await fetch("live", { cache: "no-store" });
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = parsed.getElementById("live");
      if (!next) throw new Error(answer.statusText);
      misses = 0;
      if (!answer.ok) { warn(next.textContent); continue; }
      if (next.dataset.known !== now.dataset.known) { location.reload(); return; }
      if (next.dataset.stages !== stages) {
        stages = next.dataset.stages;
        document.getElementById("announced").textContent = stages;
      }
      const busy = now.contains(document.activeElement) || now.querySelector(".tip:not([hidden])");
      if (!busy) {
        const opened = [...now.querySelectorAll("details")].map((one) => one.open);
        next.querySelectorAll("details").forEach((one, n) => { one.open = Boolean(opened[n]); });
        now.replaceWith(document.adoptNode(next)); enliven(next);
      }
    } catch {
      misses += 1;
      if (misses === 3) {
        warn("The server does not answer any more: what is shown is as it was then.");
      }
      if (misses > 60) return;
    }
  }
})();
