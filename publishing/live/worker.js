/* Python in a thread of its own: fetches and verifies its parts, starts it, and runs cells.
   From the page come {kind: "start", parts, base, claims, narrow} once, then {kind: "run", cell,
   version, code} and {kind: "compare", question, answers}.
   To the page go what the kernel says (publishing/live/kernel.py), {kind: "loading", loaded, total},
   {kind: "ready"}, {kind: "compared", question, text} and {kind: "fatal", text}. */

const CACHE = "ntpnb-python";
const PYODIDE = ["pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"];
let run = null;
let compare = null; // what an explorable computed, with the package
let current = null; // the cell that runs, and its version

const hex = (bytes) =>
  [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

const cacheOf = async () => {
  try {
    return await caches.open(CACHE);
  } catch {
    return null; // private windows, full disks: then every visit loads anew
  }
};

const fetched = async (part, base, arrived) => {
  const response = await fetch(`${base}${part.file}?${part.sha256.slice(0, 16)}`);
  if (!response.ok) throw new Error(`${part.file} is missing (status ${response.status})`);
  const reader = response.body.getReader();
  const pieces = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    arrived(value.length);
  }
  return new Blob(pieces).arrayBuffer();
};

/* Looks in the cache first; what has another hash than the list says is never used. */
const load = async (part, base, cache, arrived) => {
  const key = new URL(`${base}sha256/${part.sha256}`).href;
  let content = await cache?.match(key).then((found) => found?.arrayBuffer());
  const isRight = async () =>
    hex(await crypto.subtle.digest("SHA-256", content)) === part.sha256;
  if (content && (await isRight())) {
    arrived(content.byteLength);
  } else {
    content = await fetched(part, base, arrived);
    if (!(await isRight()))
      throw new Error(`${part.file} is not the file that was published with this page`);
    await cache?.put(key, new Response(content)).catch(() => null);
  }
  if (!part.file.endsWith(".gz")) return content;
  const unpacked = new Blob([content]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(unpacked).arrayBuffer();
};

const forget = async (cache, parts, base) => {
  if (!cache) return;
  const kept = new Set(parts.map((part) => new URL(`${base}sha256/${part.sha256}`).href));
  for (const request of await cache.keys()) if (!kept.has(request.url)) await cache.delete(request);
};

const start = async ({ parts, base, claims, narrow }) => {
  if (!self.crypto?.subtle)
    throw new Error("a browser runs Python only on pages that come by https, or from this machine");
  const cache = await cacheOf();
  const total = parts.reduce((sum, part) => sum + part.bytes, 0);
  let loaded = 0;
  const arrived = (bytes) => {
    loaded += bytes;
    postMessage({ kind: "loading", loaded, total });
  };
  const contents = {};
  for (const part of parts) {
    const content = load(part, base, cache, arrived);
    content.catch(() => null); // it is awaited below, and its failure is heard of there
    contents[part.file.replace(/\.gz$/, "")] = content;
  }
  // Pyodide starts while its packages are still on their way.
  const own = new Map();
  for (const name of PYODIDE) own.set(name, await contents[name]);
  const types = { js: "text/javascript", wasm: "application/wasm" };
  const blob = (name) => new Blob([own.get(name)], { type: types[name.split(".").pop()] ?? "" });
  // It asks for its files by name; they are here already, and nothing else is ever asked for.
  self.fetch = async (asked) => {
    const name = String(asked.url ?? asked).split("/").pop();
    if (!own.has(name)) throw new Error(`nothing is loaded from elsewhere: ${name}`);
    const content = blob(name);
    return new Response(content, { headers: { "Content-Type": content.type } });
  };
  const scripts = ["pyodide.asm.js", "pyodide.js"].map((name) => URL.createObjectURL(blob(name)));
  importScripts(`${base}install.js`, ...scripts);
  for (const script of scripts) URL.revokeObjectURL(script);
  const python = await loadPyodide({ indexURL: base, lockFileURL: `${base}pyodide-lock.json` });
  own.clear();
  await install(python, await contents["packages.json"], await contents["packages.data"]);
  python.unpackArchive(await contents["book.zip"], "zip", { extractDir: "/ntpnb" });
  await forget(cache, parts, base);
  python.globals.set("send", (text) => postMessage({ ...JSON.parse(text), ...current }));
  python.globals.set("claims", claims);
  python.globals.set("narrow", narrow);
  run = python.runPython(`
import os, sys
os.environ["MPLBACKEND"] = "agg"
sys.path.insert(0, "/ntpnb")
os.chdir("/ntpnb")
from kernel import start
start(claims, send, narrow)
`);
  compare = (answers) => python.pyimport("explored").reply(answers);
};

const fail = (error) => postMessage({ kind: "fatal", text: String(error?.message ?? error) });

self.onmessage = async ({ data }) => {
  try {
    if (data.kind === "start") {
      await start(data);
      postMessage({ kind: "ready" });
    } else if (data.kind === "compare") {
      postMessage({ kind: "compared", question: data.question, text: compare(data.answers) });
    } else {
      current = { cell: data.cell, version: data.version };
      postMessage({ ...JSON.parse(run(data.cell, data.code)), ...current });
    }
  } catch (error) {
    fail(error);
  }
};
