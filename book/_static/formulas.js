/* A displayed formula that is wider than its column scrolls; then, and only then, the keyboard reaches it. */
document.addEventListener("DOMContentLoaded", async () => {
  const reach = () => {
    for (const formula of document.querySelectorAll("div.math mjx-container")) {
      if (formula.scrollWidth > formula.clientWidth) formula.tabIndex = 0;
      else formula.removeAttribute("tabindex");
    }
  };
  // Without MathJax, TeX is what there is to read.
  if (!window.MathJax?.startup) document.documentElement.classList.add("untypeset");
  await window.MathJax?.startup?.promise;
  reach();
  addEventListener("resize", reach);
});
