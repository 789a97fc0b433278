// Paper is light: printing from dark mode takes the light colours, and puts the dark ones back.
"use strict";
{
  const page = document.documentElement.dataset;
  let mode;
  addEventListener("beforeprint", () => {
    mode = page.theme;
    page.theme = "light";
  });
  addEventListener("afterprint", () => (page.theme = mode));
}
