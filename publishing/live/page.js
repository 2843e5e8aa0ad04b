/* The code of a page, run in this browser. `start` is called by the page's button and by nothing
   else; publishing/live/__init__.py writes the button and what this script reads. Whoever tests a
   page finds in <html>'s data-live one of idle, loading, ready, running, done and failed, and in
   data-live-claims how many of the page's claims hold here, of how many: "12/12"; the event
   "live-cell" says how each cell ended. */

const HERE = new URL(".", import.meta.url).href;
const FRESH = "fresh";
const RAN = "ran";
const LEFT_OUT = "left-out";

const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

const button = (text, onclick) => element("button", { type: "button", textContent: text, onclick });

const duration = (seconds) => {
  if (seconds < 0.95) return "less than a second";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return `${Math.round(seconds / 60)} minutes`;
};

/* Only numbers, truth values, texts without escapes, and lists of these: what stands in an address
   can set a parameter, and never run code of its own. */
const NUMBER = String.raw`[-+]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?`;
const ATOM = String.raw`(?:${NUMBER}|True|False|None|"[^"\\\n]*"|'[^'\\\n]*')`;
const ITEMS = String.raw`${ATOM}(?:, *${ATOM})*,?`;
const VALUE = String.raw`(?:${ATOM}|\[(?:${ITEMS})?\]|\((?:${ITEMS})?\))`;
const LITERAL = new RegExp(`^${VALUE}(?:, *${VALUE})*,?$`);
export const isLiteral = (text) => LITERAL.test(text.trim());

/* A line `name = value  # remark` with another value; the remark stays. */
export const withValue = (code, name, value) =>
  code
    .split("\n")
    .map((line) => {
      const found = line.match(/^(\w+)( = )(.*?)(\s+#.*)?$/);
      return found?.[1] === name ? `${name} = ${value}${found[4] ?? ""}` : line;
    })
    .join("\n");

export const valueIn = (code, name) => {
  for (const line of code.split("\n")) {
    const found = line.match(/^(\w+) = (.*?)(\s+#.*)?$/);
    if (found?.[1] === name) return found[2];
  }
  return null;
};

/* The thread that Python runs in. */
class Engine {
  constructor(page, hear) {
    this.page = page;
    this.hear = hear;
    this.worker = null;
    this.replies = [];
  }

  async load() {
    const response = await fetch(`${HERE}parts.json`, { cache: "no-cache" });
    if (!response.ok) throw new Error(`parts.json is missing (status ${response.status})`);
    const parts = await response.json();
    this.worker = new Worker(`${HERE}worker.js`);
    this.worker.onmessage = ({ data }) => this.hear(data);
    this.worker.onerror = (event) => {
      event.preventDefault();
      this.hear({ kind: "fatal", text: event.message || "worker.js could not be loaded" });
    };
    const claims = JSON.stringify(this.page.claims);
    const narrow = matchMedia("(max-width: 576px)").matches; // as the pictures' sources ask
    this.worker.postMessage({ kind: "start", parts, base: HERE, claims, narrow });
  }

  run(cell, version, code) {
    this.worker.postMessage({ kind: "run", cell, version, code });
  }

  /* Lets the package compute what an explorable computed; the reply comes after what runs now. */
  compare(answers, reply) {
    const question = this.replies.push(reply) - 1;
    this.worker.postMessage({ kind: "compare", question, answers });
  }

  stop() {
    this.worker?.terminate();
    this.worker = null;
    for (const reply of this.replies.splice(0)) reply("");
  }
}

/* A picture of the page: the drawings of a run in the place of the printed ones, and back. */
class Picture {
  constructor(image) {
    this.image = image;
    this.sources = [...image.parentElement.querySelectorAll("source")];
    const figure = image.closest("figure");
    this.slider = figure?.querySelector(".frames");
    this.printed = {
      image: this.attributes(image),
      sources: this.sources.map((source) => this.attributes(source)),
      texts: this.slider?.dataset.texts,
    };
    this.addresses = [];
  }

  attributes(node) {
    return [...node.attributes].map(({ name, value }) => [name, value]);
  }

  restore() {
    for (const [node, attributes] of [
      [this.image, this.printed.image],
      ...this.sources.map((source, k) => [source, this.printed.sources[k]]),
    ]) {
      for (const name of node.getAttributeNames()) node.removeAttribute(name);
      for (const [name, value] of attributes) node.setAttribute(name, value);
    }
    if (this.slider) this.slider.dataset.texts = this.printed.texts;
    this.release();
    this.rewind();
  }

  release() {
    for (const address of this.addresses) URL.revokeObjectURL(address);
    this.addresses = [];
  }

  address(svg) {
    const made = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
    this.addresses.push(made);
    return made;
  }

  measure(node, svg) {
    const found = svg.match(/<svg [^>]*?width="([\d.]+)(?:pt|px)?" height="([\d.]+)/);
    if (!found) return;
    node.setAttribute("width", Math.round((found[1] * 4) / 3));
    node.setAttribute("height", Math.round((found[2] * 4) / 3));
  }

  show({ svg, drawings, texts }) {
    this.release();
    this.image.removeAttribute("style");
    this.image.src = this.address(svg);
    this.measure(this.image, svg);
    for (const source of this.sources) {
      const narrow = drawings.narrow ?? svg;
      source.srcset = this.address(narrow);
      this.measure(source, narrow);
    }
    if (drawings.frames && this.slider) {
      this.image.dataset.strip = this.address(drawings.frames);
      this.slider.dataset.texts = JSON.stringify(texts);
      this.rewind();
    }
    this.image.dataset.live = "here";
  }

  /* The picture shows the slider's first position again. */
  rewind() {
    const input = this.slider?.querySelector("input");
    if (!input) return;
    const texts = JSON.parse(this.slider.dataset.texts);
    input.max = texts.length - 1;
    input.value = input.defaultValue;
    input.setAttribute("aria-valuetext", texts[input.value]);
    this.slider.querySelector("output").textContent = texts[input.value];
  }
}

const nameOfPicture = (image) => {
  const links = [...(image.closest("figure")?.querySelectorAll("a[href]") ?? [])];
  const files = [...links.map((link) => link.getAttribute("href")), image.getAttribute("src")];
  for (const file of files) {
    const found = file.match(/([a-z0-9_]+)\.(?:csv|svg|png)$/);
    if (found) return found[1].replace(/_frames$/, "");
  }
  return "";
};

/* One code cell: its code, what it printed and what it shows now. */
class Cell {
  constructor(page, number, described) {
    this.page = page;
    this.number = number;
    this.printedCode = described.code;
    this.code = described.code;
    this.claims = described.claims;
    this.parameters = described.parameters;
    this.expectedSeconds = described.seconds;
    this.state = FRESH;
    this.version = 0;
    this.node = null;
  }

  /* Gives the cell its buttons, where the page shows its code. */
  attach(node) {
    this.node = node;
    this.block = node.querySelector(".cell_input");
    this.pre = this.block.querySelector("pre");
    this.printedHtml = this.pre.innerHTML;
    this.time = element("span", { className: "live-time" });
    this.editButton = button("Edit", () => this.edit());
    const run = button("Run to here", () => this.page.runTo(this.number, true));
    run.dataset.liveRun = this.number;
    const row = element("div", { className: "live-buttons" }, run, this.editButton, this.time);
    this.block.append(row);
    this.sayTime();
  }

  sayTime() {
    if (!this.time) return;
    const [seconds, where] =
      this.seconds === undefined
        ? [this.expectedSeconds, "when we ran it in a browser"]
        : [this.seconds, "here"];
    this.time.textContent = seconds === null ? "" : `${duration(seconds)} ${where}`;
  }

  edit() {
    if (this.editor) {
      this.editor.remove();
      this.editor = null;
      this.pre.hidden = false;
      this.editButton.textContent = "Edit";
      return;
    }
    this.editor = element("textarea", {
      className: "live-editor",
      value: this.code,
      rows: this.code.split("\n").length + 1,
      spellcheck: false,
    });
    this.editor.setAttribute("aria-label", `Code of cell ${this.number + 1}`);
    this.editor.addEventListener("input", () => this.page.changed(this, this.editor.value));
    this.editor.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.shiftKey)) {
        event.preventDefault();
        this.page.runTo(this.number, true);
      }
    });
    this.pre.hidden = true;
    this.pre.after(this.editor);
    this.editButton.textContent = "Close editor";
    this.editor.focus();
  }

  setCode(code) {
    this.code = code;
    if (!this.pre) return;
    if (code === this.printedCode) this.pre.innerHTML = this.printedHtml;
    else this.pre.textContent = code;
    if (this.editor && this.editor.value !== code) this.editor.value = code;
  }

  get isChanged() {
    return this.code.trim() !== this.printedCode.trim();
  }

  /* Hides what the page printed of the cell besides pictures, and what it gave here before. */
  clearOutput() {
    this.removeOutput();
    for (const part of this.node?.querySelectorAll(".cell_output > .output") ?? [])
      if (!part.querySelector("figure, img")) part.classList.add("live-hidden");
  }

  removeOutput() {
    this.output?.remove();
    this.output = null;
    this.revoke();
  }

  /* Where the cell shows what it gives; null for one that the page does not show. */
  get room() {
    if (!this.output && this.node) {
      this.output = element("div", { className: "live-output", tabIndex: 0 });
      this.output.setAttribute("role", "group");
      this.output.setAttribute("aria-label", `What cell ${this.number + 1} gave here`);
      this.node.append(this.output);
    }
    return this.output;
  }

  revoke() {
    for (const address of this.addresses ?? []) URL.revokeObjectURL(address);
    this.addresses = [];
  }

  print(text, className = "") {
    const last = this.room?.lastElementChild;
    if (last?.tagName === "PRE" && last.className === className) last.append(text);
    else this.room?.append(element("pre", { className }, text));
  }

  draw(svg) {
    if (!this.room) return;
    const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
    this.addresses.push(address);
    this.room.append(
      element("img", { src: address, alt: `Drawing of cell ${this.number + 1}` })
    );
  }

  restore() {
    this.setCode(this.printedCode);
    if (this.editor) this.edit();
    this.removeOutput();
    for (const part of this.node?.querySelectorAll(".live-hidden") ?? [])
      part.classList.remove("live-hidden");
    this.seconds = undefined;
    this.sayTime();
  }
}

/* What was measured of the page's claims, beside what the book measured. */
class Ledger {
  constructor(cells) {
    this.cells = cells;
    this.measured = new Map();
    this.ids = cells.flatMap((cell) => cell.claims);
  }

  place(id) {
    return document.getElementById(`claim-${id.replaceAll(/[._]/g, "-").toLowerCase()}`);
  }

  set(id, holds, text) {
    this.measured.set(id, { holds, text });
    const place = this.place(id);
    if (!place) return;
    let line = place.querySelector(".live-claim");
    if (!line) place.append((line = element("span", { className: "live-claim" })));
    line.textContent = `${holds ? "✓" : "✗"} in this browser: ${text}`;
    line.classList.toggle("live-wrong", !holds);
    line.dataset.holds = holds;
    if (!holds) place.closest("details").open = true;
    this.sum(place.closest("details"));
  }

  /* Says in the line that folds some claims how many of them hold here. */
  sum(fold) {
    const lines = [...fold.querySelectorAll(".live-claim[data-holds]")];
    const holding = lines.filter((line) => line.dataset.holds === "true").length;
    let words = fold.querySelector("summary .live-sum");
    if (!words) fold.firstElementChild.append((words = element("span", { className: "live-sum" })));
    words.textContent = lines.length ? ` · here ${holding} of ${lines.length} hold` : "";
  }

  forget(ids, words = "not measured since the change") {
    for (const id of ids) {
      const known = this.measured.delete(id);
      const line = this.place(id)?.querySelector(".live-claim");
      if (!line) continue;
      line.classList.remove("live-wrong");
      delete line.dataset.holds;
      const fold = line.closest("details");
      if (!words) line.remove();
      else if (known) line.textContent = words;
      this.sum(fold);
    }
  }

  get failing() {
    return [...this.measured].filter(([, { holds }]) => !holds).map(([id]) => id);
  }

  get holding() {
    return this.measured.size - this.failing.length;
  }

  get leftOut() {
    return this.cells
      .filter((cell) => cell.state === LEFT_OUT)
      .flatMap((cell) => cell.claims)
      .filter((id) => !this.measured.has(id)).length;
  }
}

class Page {
  constructor(starter, described) {
    this.starter = starter;
    this.described = described;
    this.cells = described.cells.map((cell, number) => new Cell(this, number, cell));
    this.ledger = new Ledger(this.cells);
    this.engine = new Engine(described, (data) => this.hear(data));
    this.goal = -1; // the last cell that is wanted
    this.running = null; // the cell that runs
    this.loaded = false;
    this.quotes = [...document.querySelectorAll(".bd-article .pasted-text")];
    this.printedQuotes = this.quotes.map((quote) => quote.textContent);
    if (this.quotes.length !== described.quotes.length) this.quotes = [];
    this.pictures = new Map();
    for (const image of document.querySelectorAll(".bd-article figure img"))
      this.pictures.set(nameOfPicture(image), new Picture(image));
    this.attachCells();
    this.buildPanel();
    document.querySelectorAll(".explore").forEach((root) => this.meet(root));
    document.addEventListener("explored", ({ target }) => this.meet(target));
  }

  /* An explorable that was built or shows another state: the package can be asked the same. */
  meet(root) {
    let row = root.querySelector(".compare");
    if (!row) {
      const says = element("span");
      says.setAttribute("role", "status");
      const ask = button("Compare with the package", (event) => {
        event.stopPropagation(); // what the explorable hears is of its own controls
        const { state } = row.dataset;
        const reply = (text) => {
          if (row.dataset.state === state) says.textContent = text;
        };
        reply(this.loaded ? "Asking …" : "Python is not running: press Run all first.");
        if (this.loaded) this.engine.compare(JSON.stringify(root.computed()), reply);
      });
      row = element("div", { className: "bar compare" }, ask, says);
      root.querySelector(".verdicts").after(row);
    }
    row.dataset.state = 1 + Number(row.dataset.state ?? 0);
    row.lastChild.textContent = "";
  }

  attachCells() {
    const shown = [...document.querySelectorAll(".bd-article div.cell .cell_input pre")];
    for (const cell of this.cells) {
      const text = cell.code.trim();
      const k = shown.findIndex((pre) => pre.textContent.trim() === text);
      if (k < 0) continue;
      cell.attach(shown[k].closest("div.cell"));
      shown.splice(0, k + 1);
    }
  }

  buildPanel() {
    this.status = element("p", { textContent: "" });
    this.status.setAttribute("role", "status");
    this.count = element("p", { className: "live-count" });
    this.progress = element("progress", { max: 1, value: 0 });
    this.progress.setAttribute("aria-label", "Loading Python");
    this.runAll = button("Run all", () => this.runTo(this.cells.length - 1, false));
    this.runAll.dataset.liveRunAll = "";
    this.stopButton = button("Stop", () => this.stop());
    this.stopButton.dataset.liveStop = "";
    this.resetButton = button("Reset", () => this.reset());
    this.resetButton.dataset.liveReset = "";
    this.shareButton = button("Copy the result", () => this.share());
    this.shareButton.dataset.liveShare = "";
    const buttons = [this.runAll, this.stopButton, this.resetButton, this.shareButton];
    this.fields = element("div", { className: "live-fields" });
    for (const cell of this.cells)
      for (const parameter of cell.parameters) this.addField(cell, parameter);
    this.panel = element(
      "section",
      { className: "live-panel" },
      this.status,
      this.progress,
      this.fields,
      element("div", { className: "live-buttons" }, ...buttons),
      this.count
    );
    this.panel.setAttribute("aria-label", "This page's code, run in this browser");
    const heading = document.querySelector(".bd-article h1");
    const needs = heading.parentElement.querySelector(":scope > p.needs");
    (needs ?? heading).after(this.panel);
  }

  addField(cell, { name, label, smaller }) {
    const id = `live-${name}`;
    const input = element("input", { id, value: valueIn(cell.code, name), spellcheck: false });
    input.dataset.liveParameter = name;
    input.dataset.cell = cell.number;
    const note = element("span", { id: `${id}-note`, className: "live-time", textContent: label });
    input.setAttribute("aria-describedby", note.id);
    const apply = (value) => {
      if (!isLiteral(value)) {
        input.setAttribute("aria-invalid", "true");
        this.say(`${name} needs a number, a text in quotes or a list of numbers, not ${value}`);
        return false;
      }
      input.removeAttribute("aria-invalid");
      this.changed(cell, withValue(cell.code, name, value.trim()));
      return true;
    };
    input.addEventListener("change", () => apply(input.value));
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && apply(input.value)) this.runTo(this.cells.length - 1, false);
    });
    if (smaller) note.append(" ", button(`quicker: ${smaller}`, () => apply(smaller)));
    this.fields.append(element("label", { htmlFor: id, textContent: name }), input, note);
  }

  refreshFields() {
    for (const input of this.fields.querySelectorAll("input")) {
      const value = valueIn(this.cells[input.dataset.cell].code, input.dataset.liveParameter);
      input.disabled = value === null;
      if (value !== null) input.value = value;
      input.removeAttribute("aria-invalid");
    }
  }

  setState(state) {
    document.documentElement.dataset.live = state;
    const isBusy = state === "loading" || state === "running";
    this.progress.hidden = state !== "loading";
    this.stopButton.disabled = !isBusy;
    this.starter.textContent = isBusy ? "Stop" : "Run all";
    this.starter.onclick = isBusy ? () => this.stop() : () => this.runAll.click();
  }

  say(words) {
    this.status.textContent = words;
  }

  /* Counts the claims, at the top of the page and for whoever tests it. */
  tally() {
    const { ids, holding, failing, leftOut, measured } = this.ledger;
    document.documentElement.dataset.liveClaims = `${holding}/${ids.length}`;
    if (!ids.length) return;
    let words = `${holding} of ${ids.length} claims hold here`;
    if (leftOut) words += `; ${leftOut} need what no browser has`;
    const waiting = ids.length - measured.size - leftOut;
    if (waiting) words += `; ${waiting} not measured`;
    const changes = this.changes();
    const also = changes.length ? `, with ${changes.join(", ")}` : "";
    this.count.replaceChildren(`${words}${also}.`);
    for (const id of failing) {
      const link = element("a", { href: `#${this.ledger.place(id)?.id ?? ""}`, textContent: id });
      this.count.append(" ✗ ", link);
    }
  }

  /* What the reader changed, in words. */
  changes() {
    const found = [];
    for (const cell of this.cells) {
      let rest = cell.code;
      for (const { name } of cell.parameters) {
        const [now, printed] = [valueIn(cell.code, name), valueIn(cell.printedCode, name)];
        if (now === printed || now === null) continue;
        found.push(`${name} = ${now} (printed: ${printed})`);
        rest = withValue(rest, name, printed);
      }
      if (rest.trim() !== cell.printedCode.trim())
        found.push(`other code in cell ${cell.number + 1}`);
    }
    return found;
  }

  async load() {
    this.loaded = false;
    this.progress.value = 0;
    this.setState("loading");
    this.say("Loading Python …");
    try {
      await this.engine.load();
    } catch (error) {
      this.halt("failed", error);
    }
  }

  hear(data) {
    const cell = this.cells[data.cell];
    if (data.kind === "loading") this.hearLoading(data);
    else if (data.kind === "ready") this.hearReady();
    else if (data.kind === "fatal") this.halt("failed", data.text);
    else if (data.kind === "compared") this.engine.replies[data.question](data.text);
    else if (data.version === cell.version) this.hearOf(cell, data);
    else if (["ran", "error", LEFT_OUT].includes(data.kind)) this.next(); // of code that is no more
  }

  hearLoading({ loaded, total }) {
    this.progress.value = loaded / total;
    const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
    this.say(
      loaded < total
        ? `Loading Python: ${megabytes(loaded)} of ${megabytes(total)} MB`
        : "Starting Python …"
    );
  }

  hearReady() {
    this.loaded = true;
    this.setState("ready");
    this.say(
      "Python runs in this page. Change a number and press Run all; nothing is sent anywhere."
    );
    this.tally();
    this.next();
  }

  hearOf(cell, data) {
    if (data.kind === "text") cell.print(data.text);
    else if (data.kind === "figure") {
      const picture = data.name && this.pictures.get(data.name);
      if (picture) picture.show(data);
      else cell.draw(data.svg);
    } else if (data.kind === "quote") this.quote(data.name, data.text);
    else if (data.kind === "claim") {
      this.ledger.set(data.id, data.holds, data.text);
      this.tally();
    } else this.ended(cell, data);
  }

  quote(name, text) {
    this.described.quotes.forEach((quoted, k) => {
      if (quoted !== name || !this.quotes.length) return;
      this.quotes[k].textContent = text;
      const differs = text !== this.printedQuotes[k];
      this.quotes[k].classList.toggle("live-quoted", differs);
      this.quotes[k].title = differs ? `printed: ${this.printedQuotes[k]}` : "";
    });
  }

  ended(cell, data) {
    this.running = null;
    cell.seconds = data.seconds;
    cell.sayTime();
    document.dispatchEvent(new CustomEvent("live-cell", { detail: data }));
    if (data.kind === "error") {
      cell.print(data.text, "live-wrong");
      for (let fold = cell.node?.closest("details"); fold; fold = fold.parentElement.closest("details"))
        fold.open = true;
      this.goal = -1;
      this.setState("ready");
      const last = data.text.trim().split("\n").at(-1);
      this.say(`Cell ${cell.number + 1} stopped: ${last}`);
      this.tally();
      return;
    }
    if (data.kind === LEFT_OUT) cell.print(`Left out: it needs ${data.needs}, which no browser has.\n`);
    cell.state = data.kind;
    this.next();
  }

  /* Runs the first cell that is wanted and has not run as it is now. */
  next() {
    this.running = null;
    const cell = this.cells.find(({ number, state }) => number <= this.goal && state === FRESH);
    if (!cell) {
      this.finish();
      return;
    }
    this.running = cell;
    this.setState("running");
    const often = cell.expectedSeconds > 5 ? `, about ${duration(cell.expectedSeconds)}` : "";
    this.say(`Running cell ${cell.number + 1} of ${this.cells.length}${often}`);
    cell.clearOutput();
    this.engine.run(cell.number, cell.version, cell.code);
  }

  finish() {
    if (this.goal < 0) return;
    const isWhole = this.cells.every(({ state }) => state !== FRESH);
    this.goal = -1;
    this.setState(isWhole ? "done" : "ready");
    const seconds = this.cells.reduce((sum, cell) => sum + (cell.seconds ?? 0), 0);
    if (isWhole) this.say(`The whole page ran here, in ${duration(seconds)} of Python.`);
    else this.say("Ran up to the cell you asked for.");
    this.tally();
  }

  /* Wants all cells up to one; `again`: that one and all later ones even if they ran already. */
  runTo(last, again) {
    const isWhole = this.cells.every(({ state }) => state !== FRESH);
    if (again && this.cells[last].state !== FRESH) this.makeFresh(last);
    else if (!again && isWhole && !this.running) this.makeFresh(0);
    this.goal = Math.max(this.goal, last);
    if (!this.engine.worker && document.documentElement.dataset.live !== "loading") this.load();
    else if (this.loaded && !this.running) this.next();
  }

  /* What a cell and all later ones showed no longer follows from the code. */
  makeFresh(first) {
    for (const cell of this.cells.slice(first)) {
      cell.state = FRESH;
      cell.version += 1;
      this.ledger.forget(cell.claims);
    }
    this.tally();
  }

  changed(cell, code) {
    if (code === cell.code) return;
    cell.setCode(code);
    this.refreshFields();
    this.makeFresh(cell.number);
    if (document.documentElement.dataset.live === "done") this.setState("ready");
    const changes = this.changes();
    if (this.loaded && !this.running)
      this.say(changes.length ? "Changed. Press Run all to see what follows." : "As printed.");
  }

  /* Ends the thread; Python starts anew, from what is kept, with the next run. */
  halt(state, reason) {
    this.engine.stop();
    this.loaded = false;
    this.running = null;
    this.goal = -1;
    this.makeFresh(0);
    this.setState(state);
    const words = String(reason?.message ?? reason);
    this.say(state === "failed" ? `Python could not run here: ${words}. The page reads as before.` : words);
  }

  stop() {
    this.halt("ready", "Stopped. The next run begins with the first cell.");
  }

  reset() {
    const isLoading = document.documentElement.dataset.live === "loading";
    if (this.running) this.halt("ready", "");
    this.goal = -1;
    for (const cell of this.cells) cell.restore();
    this.makeFresh(0);
    this.ledger.forget(this.ledger.ids, "");
    for (const picture of this.pictures.values()) if (picture.image.dataset.live) picture.restore();
    this.quotes.forEach((quote, k) => {
      quote.textContent = this.printedQuotes[k];
      quote.classList.remove("live-quoted");
      quote.title = "";
    });
    this.refreshFields();
    this.tally();
    if (isLoading) return;
    this.setState("ready");
    this.say("The page is as printed.");
  }

  /* The result as a text, with an address that brings the changed parameters. */
  async share() {
    const values = {};
    for (const cell of this.cells)
      for (const { name } of cell.parameters) {
        const now = valueIn(cell.code, name);
        if (now !== null && now !== valueIn(cell.printedCode, name)) values[name] = now;
      }
    const address = new URL(location.href);
    address.hash = "";
    address.search = "";
    if (Object.keys(values).length) address.searchParams.set("run", JSON.stringify(values));
    const lines = [this.described.title, this.count.textContent, address.href];
    const text = lines.join("\n");
    this.shared?.remove();
    this.shared = element("textarea", { className: "live-editor", value: text, readOnly: true, rows: 4 });
    this.shared.setAttribute("aria-label", "The result as a text");
    this.panel.append(this.shared);
    try {
      await navigator.clipboard.writeText(text);
      this.say("Copied: what ran here, and an address that brings the changed numbers.");
    } catch {
      this.shared.select(); // the clipboard is not allowed everywhere
      this.say("Here is the result as a text, to copy.");
    }
  }

  /* Takes changed parameters from the page's address; anything but a literal is refused. */
  applyLink() {
    const text = new URLSearchParams(location.search).get("run");
    if (!text) return;
    let values;
    try {
      values = Object.entries(JSON.parse(text));
    } catch {
      values = [];
    }
    for (const [name, value] of values) {
      const cell = this.cells.find(({ parameters }) => parameters.some((one) => one.name === name));
      if (cell && typeof value === "string" && isLiteral(value))
        this.changed(cell, withValue(cell.code, name, value.trim()));
    }
  }
}

/* The page's name below nb/, by which its description is filed. */
const pageName = () => location.pathname.match(/\/nb\/(.+?)(?:\.html)?$/)[1];

export const start = async (starter) => {
  starter.onclick = null;
  const style = element("link", { rel: "stylesheet", href: `${HERE}page.css` });
  document.head.append(style);
  try {
    const response = await fetch(`${HERE}pages/${pageName()}.json`, { cache: "no-cache" });
    if (!response.ok) throw new Error(`its description is missing (status ${response.status})`);
    const page = new Page(starter, await response.json());
    page.applyLink();
    await page.load();
  } catch (error) {
    document.documentElement.dataset.live = "failed";
    starter.textContent = `Python could not run here: ${error.message}`;
  }
};
