// A browser shows a notebook that is opened from a file, as text. There it is saved from a copy that stands in a script.
"use strict";
if (location.protocol === "file:") {
  const save = (link) => {
    const copy = document.createElement("a");
    copy.href = URL.createObjectURL(new Blob([window.notebook]));
    copy.download = link.href.split("/").pop();
    copy.click();
    URL.revokeObjectURL(copy.href);
  };
  for (const link of document.querySelectorAll(".doors a[download], a.btn-download-source-button")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      if (window.notebook) return save(link);
      const script = document.createElement("script");
      script.src = `${link.href}.js`;
      script.onload = () => save(link);
      document.head.append(script);
    });
  }
}
