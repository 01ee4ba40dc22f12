
// Asks the page's own server how it goes; when something was finished, the whole page is new.
(async () => {
  let misses = 0;
  for (;;) {
    await new Promise((wake) => setTimeout(wake, document.hidden ? 5000 : 1000));
    const now = document.getElementById("live");
    try {
      const answer = await fetch("live", { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = parsed.getElementById("live");
      misses = 0;
      if (next.dataset.known !== now.dataset.known) { location.reload(); return; }
      const busy = now.contains(document.activeElement) || now.querySelector(".tip:not([hidden])");
      if (!busy) {
        const opened = [...now.querySelectorAll("details")].map((one) => one.open);
        next.querySelectorAll("details").forEach((one, n) => { one.open = Boolean(opened[n]); });
        now.replaceWith(document.adoptNode(next)); enliven(next);
      }
    } catch {
      misses += 1;
      if (misses === 3) {
        const gone = document.createElement("p");
        gone.className = "warning";
        gone.textContent = "The server does not answer any more: what is shown is as it was then.";
        now.prepend(gone);
      }
      if (misses > 60) return;
    }
  }
})();
