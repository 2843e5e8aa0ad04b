/* A slider below a figure shows one frame of the strip that its caption links to. The picture is
   an ordinary image cut to one frame, so that this works from a file and without a network. */
document.addEventListener("DOMContentLoaded", () => {
  for (const control of document.querySelectorAll(".frames")) {
    const figure = control.closest("figure");
    const images = [...(figure?.querySelectorAll("img[data-strip]") ?? [])];
    if (!images.length) continue;
    const [slider, output] = control.querySelectorAll("input, output");
    slider.addEventListener("input", () => {
      const texts = JSON.parse(control.dataset.texts); // others, once the page's code ran here
      for (const image of images) {
        if (image.dataset.strip) {
          const [width, height] = ["width", "height"].map((side) => image.getAttribute(side));
          image.style.aspectRatio = `${width} / ${height}`;
          image.style.width = `${width}px`;
          image.style.objectFit = "cover";
          image.src = image.dataset.strip;
          delete image.dataset.strip;
        }
        image.style.objectPosition = `0 ${(100 * slider.value) / slider.max}%`;
      }
      output.textContent = texts[slider.value];
      slider.setAttribute("aria-valuetext", texts[slider.value]);
    });
    control.hidden = false;
  }
});
