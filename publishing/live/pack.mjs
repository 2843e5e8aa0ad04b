// node pack.mjs PARTS: start Pyodide from PARTS and let pack.py write there what it makes of them.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const parts = process.argv[2];
try {
  const { loadPyodide } = createRequire(import.meta.url)(`${parts}/pyodide.js`);
  const python = await loadPyodide({ indexURL: `${parts}/` });
  python.FS.mkdir("/parts");
  python.FS.mount(python.FS.filesystems.NODEFS, { root: parts }, "/parts");
  python.runPython(readFileSync(new URL("pack.py", import.meta.url), "utf8"));
  python.runPython("unpack()");
  await python._api.loadDynlib("/site/libopenblas.so", true);
  python.runPython("gather()");
} catch (error) {
  console.error(`pack.mjs: ${error.message}`); // without the line of the runtime that threw it
  process.exit(1);
}
