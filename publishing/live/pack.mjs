// node pack.mjs PARTS PACKED: start Pyodide from PARTS and let pack.py write to PACKED.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [parts, packed] = process.argv.slice(2);
try {
  const { loadPyodide } = createRequire(import.meta.url)(`${parts}/pyodide.js`);
  const python = await loadPyodide({ indexURL: `${parts}/` });
  for (const [folder, root] of [["/parts", parts], ["/packed", packed]]) {
    python.FS.mkdir(folder);
    python.FS.mount(python.FS.filesystems.NODEFS, { root }, folder);
  }
  python.runPython(readFileSync(new URL("pack.py", import.meta.url), "utf8"));
  python.runPython("unpack()");
  await python._api.loadDynlib("/site/libopenblas.so", true);
  python.runPython("gather()");
} catch (error) {
  console.error(`pack.mjs: ${error.message}`); // without the line of the runtime that threw it
  process.exit(1);
}
