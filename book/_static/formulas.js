/* A displayed formula that is wider than its column scrolls; then, and only then, the keyboard reaches it, and an
   arrow at its edge says that there is more until the end has been seen. */
document.addEventListener("DOMContentLoaded", async () => {
  const look = (formula) => {
    const hidden = formula.scrollWidth - formula.clientWidth;
    if (hidden > 0) formula.tabIndex = 0;
    else formula.removeAttribute("tabindex");
    formula.parentElement.classList.toggle("goes-on", formula.scrollLeft < hidden - 1);
  };
  // Without MathJax, TeX is what there is to read.
  if (!window.MathJax?.startup) document.documentElement.classList.add("untypeset");
  await window.MathJax?.startup?.promise;
  const formulas = document.querySelectorAll("div.math mjx-container");
  for (const formula of formulas) formula.addEventListener("scroll", () => look(formula), { passive: true });
  // The text changes its size when the window does, when side bars slide, and when something is unfolded.
  new ResizeObserver(() => formulas.forEach(look)).observe(document.querySelector("article") ?? document.body);
});
