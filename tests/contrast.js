// The lowest contrast, as WCAG counts it, of any text below a selector with what lies behind it: [ratio, text].
// A drawing counts with its ink, and so do the labels that the stylesheet writes; text of size 0 does not, which names
// a link that is laid over a card.
(selector) => {
  const rgba = (colour) => {
    const [red, green, blue, alpha = 1] = colour.match(/[\d.]+/g).map(Number);
    return { rgb: [red, green, blue], alpha };
  };
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const luminance = ({ rgb: [red, green, blue] }) =>
    0.2126 * linear(red / 255) + 0.7152 * linear(green / 255) + 0.0722 * linear(blue / 255);
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const colour = rgba(getComputedStyle(element).backgroundColor);
      if (colour.alpha > 0.99) return colour;
    }
    return rgba("rgb(255, 255, 255)");
  };
  // what is written at an element, each with what lies behind it
  const inks = (element) => {
    const paper = behind(element);
    const label = getComputedStyle(element, "::before");
    const ownPaper = rgba(label.backgroundColor);
    const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const written = text && getComputedStyle(element).fontSize !== "0px";
    return [
      ...(written || element.matches("svg[role=img]") ? [[getComputedStyle(element).color, paper]] : []),
      ...(/\w/.test(label.content) && label.content !== "none"
        ? [[label.color, ownPaper.alpha > 0.99 ? ownPaper : paper]]
        : []),
    ];
  };
  const found = [];
  for (const element of document.querySelectorAll(`:is(${selector}), :is(${selector}) *`)) {
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    for (const [ink, paper] of inks(element)) {
      const [low, high] = [luminance(rgba(ink)), luminance(paper)].sort((a, b) => a - b);
      found.push([(high + 0.05) / (low + 0.05), element.textContent.trim().slice(0, 40)]);
    }
  }
  return found.sort((a, b) => a[0] - b[0])[0];
}
