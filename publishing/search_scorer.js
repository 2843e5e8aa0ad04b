/* How the search page orders what it found: definitions and chapters first, then what proves them,
   then the package and the ledger, last what changed and how long it takes. */
var Scorer = {
  score: ([page, , , , score]) => {
    const shelves = [
      [/^nb\/\d/, 20],
      [/^(index|summary|notation|explore_)/, 15],
      [/^(nb\/evidence\/|proofs|equations|errata)/, 0],
      [/^(benchmarks|scaling_out|changelog)/, -30],
    ];
    const [, weight] = shelves.find(([names]) => names.test(page)) ?? [null, -15];
    return score + weight;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

/* The lines below a result are prose: no code, no output, no formula's source. */
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  const original = Search.htmlToText;
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    const unread = "pre, template, .frames, details.hide > summary, div.math, .headerlink";
    for (const block of page.querySelectorAll(unread)) block.remove();
    for (const formula of page.querySelectorAll("span.math"))
      formula.textContent = formula.textContent.replace(/^\\\(|\\\)$/g, "");
    return original(page.documentElement.outerHTML, anchor);
  };
});
