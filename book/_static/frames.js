/* A slider below a figure shows one frame of the strip that its caption links to. The picture is
   an ordinary image cut to one frame, so that this works from a file and without a network. */
document.addEventListener("DOMContentLoaded", () => {
  for (const control of document.querySelectorAll(".frames")) {
    const figure = control.closest("figure");
    const image = figure?.querySelector("img");
    const strip = figure?.querySelector('a[href$="_frames.svg"]');
    if (!image || !strip) continue;
    const [slider, output] = control.querySelectorAll("input, output");
    const texts = JSON.parse(control.dataset.texts);
    slider.addEventListener("input", () => {
      if (image.src !== strip.href) {
        image.style.aspectRatio = `${image.offsetWidth} / ${image.offsetHeight}`;
        image.style.width = `${image.naturalWidth}px`;
        image.style.objectFit = "cover";
        image.src = strip.href;
      }
      image.style.objectPosition = `0 ${(100 * slider.value) / slider.max}%`;
      output.textContent = texts[slider.value];
      slider.setAttribute("aria-valuetext", texts[slider.value]);
    });
    control.hidden = false;
  }
});
