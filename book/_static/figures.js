/* Two things a figure offers: it can be enlarged, and its link "code" unfolds the cell that drew it.
   The dialog is the browser's own: Escape closes it, and focus returns to the button. */
document.addEventListener("DOMContentLoaded", () => {
  const enlarge = (figure, button) => {
    const shown = [...figure.querySelectorAll(".views img")].find((image) => image.offsetWidth);
    if (!shown) return;
    const dialog = document.createElement("dialog");
    dialog.className = "enlarged";
    dialog.setAttribute("aria-label", button.getAttribute("aria-label"));
    const close = document.createElement("button");
    close.type = "button";
    close.textContent = "Close";
    close.addEventListener("click", () => dialog.close());
    dialog.append(close, shown.cloneNode());
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      button.focus();
    });
    document.body.append(dialog);
    dialog.showModal();
  };
  for (const views of document.querySelectorAll("figure .views")) {
    const figure = views.closest("figure");
    const number = figure.querySelector(".caption-number")?.textContent.trim() ?? "this figure";
    const button = document.createElement("button");
    button.type = "button";
    button.className = "enlarge";
    button.textContent = "⤢";
    button.title = "Enlarge";
    button.setAttribute("aria-label", `Enlarge ${number}`);
    button.addEventListener("click", () => enlarge(figure, button));
    views.after(button);
    for (const image of views.querySelectorAll("img")) {
      image.classList.add("enlarge");
      image.addEventListener("click", () => enlarge(figure, button));
    }
  }

  const unfold = () => {
    const target = document.getElementById(location.hash.slice(1));
    const folded = target?.classList.contains("cell_input") && target.closest("details");
    if (!folded) return;
    folded.open = true;
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", unfold);
  for (const link of document.querySelectorAll("a.to-code"))
    link.addEventListener("click", () => setTimeout(unfold));
  unfold();
});
