// Previews: what a link in the text leads to, shown beside it under the pointer and on keyboard focus. Escape closes it.
"use strict";
(() => {
  const article = document.querySelector("article.bd-article");
  if (!article) return;
  const root = new URL(document.documentElement.dataset.content_root || "./", location.href);
  const tip = document.createElement("div");
  Object.assign(tip, { id: "preview", className: "preview", role: "tooltip", hidden: true });
  article.append(tip);
  let shown = null; // the link whose preview is open
  let timer;
  let pointer; // the last event that told where it is
  let dismissed; // the one before Escape: until the pointer moves, what comes to lie under it opens nothing

  // What is shown of a target on this page: a copy that is only looked at. publish/previews.py does the same.
  const still = (part) => {
    const copy = document.createElement("div");
    copy.className = `preview-${part.localName}`;
    copy.append(...part.cloneNode(true).childNodes);
    copy.querySelectorAll("script, button, input, select, output, .headerlink").forEach((one) => one.remove());
    copy.querySelectorAll("a").forEach((one) => one.replaceWith(...one.childNodes));
    copy.querySelectorAll("[id], [tabindex]").forEach((one) => {
      one.removeAttribute("id");
      one.removeAttribute("tabindex");
    });
    return copy;
  };
  const parts = (target) => {
    if (target.matches("dt")) {
      let meaning = target; // two words may share one
      while (meaning.matches("dt")) meaning = meaning.nextElementSibling;
      return [target, meaning];
    }
    if (target.matches("section")) return target.querySelectorAll(":scope > :is(h1, h2, h3, h4), :scope > p:first-of-type");
    return target.matches("div.math, div.citation, figure, table") ? [target] : [];
  };

  // Of a target on another page there are excerpts beside that page, in a script, since a file cannot be fetched.
  const load = (page) =>
    window.previews?.[page] ??
    new Promise((resolve) => {
      const script = document.createElement("script");
      script.src = new URL(`_previews/${page}.js`, root).href;
      script.onload = () => resolve(window.previews?.[page] ?? {});
      script.onerror = () => resolve({});
      document.head.append(script);
    });
  const contents = async (link) => {
    const [address, anchor = ""] = link.href.split("#");
    if (address === location.href.split("#")[0]) {
      const target = document.getElementById(decodeURIComponent(anchor));
      return target ? [...parts(target)].map(still) : [];
    }
    if (!address.startsWith(root.href) || !address.endsWith(".html")) return [];
    const found = (await load(address.slice(root.href.length, -5)))[decodeURIComponent(anchor)];
    const holder = document.createElement("template");
    holder.innerHTML = found ?? "";
    return [...holder.content.childNodes];
  };

  const place = () => {
    const margin = 8;
    const box = shown.getClientRects()[0];
    const below = shown.getBoundingClientRect().bottom + margin;
    const fits = below + tip.offsetHeight <= innerHeight - margin;
    tip.style.top = `${fits ? below : Math.max(margin, box.top - margin - tip.offsetHeight)}px`;
    tip.style.left = `${Math.max(margin, Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - margin))}px`;
  };
  const hide = () => {
    clearTimeout(timer);
    shown?.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
    tip.replaceChildren();
  };
  const show = async (link) => {
    clearTimeout(timer);
    if (shown === link) return;
    hide();
    shown = link;
    const content = await contents(link);
    if (shown !== link || !content.length) return;
    tip.replaceChildren(...content);
    tip.hidden = false;
    link.setAttribute("aria-describedby", "preview");
    place();
    if (!/\\[([]/.test(tip.textContent)) return;
    await window.MathJax?.startup?.promise; // the mathematics of another page comes as TeX
    await window.MathJax?.typesetPromise?.([tip]);
    if (shown === link) place();
  };
  // It stays as long as the pointer is on the link or on the preview, or the focus on the link.
  const leave = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (!tip.matches(":hover") && !shown?.matches(":hover, :focus-visible")) hide();
    }, 200);
  };

  for (const link of article.querySelectorAll("a.reference.internal:not(.headerlink, .sd-stretched-link)")) {
    link.removeAttribute("title"); // the browser's own tip would lie over this one
    link.addEventListener("pointerenter", (event) => {
      if (event.pointerType === "touch") return; // a tap follows the link, as anywhere
      if (dismissed?.clientX === event.clientX && dismissed.clientY === event.clientY) return;
      clearTimeout(timer);
      timer = setTimeout(() => show(link), 150);
    });
    link.addEventListener("pointerleave", leave);
    link.addEventListener("focus", () => link.matches(":focus-visible") && show(link));
    link.addEventListener("blur", leave);
    link.addEventListener("click", hide);
  }
  tip.addEventListener("pointerleave", leave);
  addEventListener("pointermove", (event) => (pointer = event), { passive: true });
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    dismissed = pointer;
    hide();
  });
  addEventListener("scroll", () => !tip.hidden && place(), { passive: true, capture: true });
  addEventListener("resize", () => !tip.hidden && place());
})();
