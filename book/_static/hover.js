/* A reference shows what it leads to: pointing at it, reaching it with the keyboard, or touching it
   opens a panel with what the build put into this page. A second touch follows the link. */
document.addEventListener("DOMContentLoaded", () => {
  const templates = new Map();
  for (const template of document.querySelectorAll("template[data-hover]"))
    templates.set(template.dataset.hover, template);
  if (!templates.size) return;

  const panel = document.createElement("div");
  panel.id = "hover-panel";
  panel.className = "hover-panel";
  panel.setAttribute("role", "tooltip");
  panel.hidden = true;
  document.body.append(panel);
  let shownFor = null;
  let timer = 0;

  const place = () => {
    const link = shownFor.getClientRects()[0] ?? shownFor.getBoundingClientRect();
    const { clientWidth, clientHeight } = document.documentElement;
    const room = clientWidth - panel.offsetWidth - 8;
    const below = link.bottom + 6;
    const above = link.top - panel.offsetHeight - 6;
    const fits = below + panel.offsetHeight <= clientHeight || above < 0;
    panel.style.left = `${scrollX + Math.max(8, Math.min(link.left, room))}px`;
    panel.style.top = `${scrollY + (fits ? below : above)}px`;
  };

  const hide = () => {
    clearTimeout(timer);
    if (!shownFor) return;
    shownFor.removeAttribute("aria-describedby");
    shownFor = null;
    panel.hidden = true;
    panel.replaceChildren();
  };

  const show = async (link) => {
    clearTimeout(timer);
    if (shownFor === link) return;
    hide();
    shownFor = link;
    const template = templates.get(link.getAttribute("href"));
    panel.append(template.content.cloneNode(true));
    link.setAttribute("aria-describedby", panel.id);
    panel.style.left = panel.style.top = "0";
    panel.hidden = false;
    place();
    for (const image of panel.querySelectorAll("img")) image.addEventListener("load", place);
    if (!panel.querySelector(".math") || !window.MathJax?.startup) return;
    await MathJax.startup.promise;
    if (shownFor !== link) return;
    await MathJax.typesetPromise([panel]);
    if (shownFor === link) place();
  };

  const soon = (action, delay) => {
    clearTimeout(timer);
    timer = setTimeout(action, delay);
  };

  for (const link of document.querySelectorAll("article a.reference.internal[href]")) {
    if (!templates.has(link.getAttribute("href"))) continue;
    link.removeAttribute("title"); // it would show a second time
    link.addEventListener("pointerenter", (event) => {
      if (event.pointerType !== "touch") soon(() => show(link), 200);
    });
    link.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch") soon(hide, 250);
    });
    link.addEventListener("focus", () => {
      if (link.matches(":focus-visible")) show(link);
    });
    link.addEventListener("blur", () => soon(hide, 0));
    link.addEventListener("click", (event) => {
      if (event.pointerType !== "touch" || shownFor === link) return;
      event.preventDefault();
      show(link);
    });
  }
  panel.addEventListener("pointerenter", () => clearTimeout(timer));
  panel.addEventListener("pointerleave", () => soon(hide, 250));
  document.addEventListener("pointerdown", (event) => {
    if (shownFor && !shownFor.contains(event.target) && !panel.contains(event.target)) hide();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  addEventListener("resize", hide);
});
