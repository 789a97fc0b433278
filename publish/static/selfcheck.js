// Self-checks: the explanation of what you choose, at once, and your progress, kept in this browser alone.
"use strict";
(() => {
  const checks = [...document.querySelectorAll(".selfcheck")];
  const answered = new Set();
  const progress = document.querySelector(".selfcheck-progress");

  // A browser may forbid storage (private windows, pages from files): progress then lasts as long as the page.
  const keep = (check, value) => {
    const key = `recurrence/${check.dataset.key}`;
    try {
      if (value === undefined) return localStorage.getItem(key);
      if (value === null) localStorage.removeItem(key);
      else localStorage.setItem(key, value);
    } catch {
      // nothing is kept
    }
    return null;
  };

  const count = () => {
    if (!progress) return;
    const [words, clear] = progress.children;
    words.textContent = `${answered.size} of ${checks.length} self-checks answered`;
    clear.hidden = !answered.size;
  };

  const say = (check, kind, ...content) => {
    const feedback = check.querySelector(".selfcheck-feedback");
    feedback.className = `selfcheck-feedback ${kind}`;
    feedback.replaceChildren(...content);
  };

  const answer = (check, button) => {
    const found = check.querySelector(`[data-choice="${button.value}"]`);
    const right = found.dataset.right === "1";
    say(check, right ? "right" : "wrong", ...found.cloneNode(true).childNodes);
    if (!answered.has(check)) keep(check, button.value); // a right answer stays, whatever is tried after it
    if (right) answered.add(check);
    check.classList.toggle("answered", answered.has(check));
    count();
  };

  for (const check of checks) {
    // The arrow keys choose on their way through the buttons: an answer is what Enter or the space bar then confirms.
    let passing = false;
    check.addEventListener("keydown", (event) => {
      passing = event.key.startsWith("Arrow");
      if ((event.key === "Enter" || event.key === " ") && event.target.checked) answer(check, event.target);
    });
    check.addEventListener("change", (event) => {
      if (passing) say(check, "asked", "Press Enter to answer with this choice.");
      else answer(check, event.target);
      passing = false;
    });
    const button = [...check.querySelectorAll("input")].find((one) => one.value === keep(check));
    if (button) {
      button.checked = true;
      answer(check, button);
    }
  }

  if (progress) {
    const [words, clear] = progress.children;
    clear.addEventListener("click", () => {
      for (const check of checks) {
        keep(check, null);
        check.classList.remove("answered");
        check.querySelectorAll("input").forEach((one) => (one.checked = false));
        say(check, "");
      }
      answered.clear();
      count();
      words.focus();
    });
    count();
  }
})();
