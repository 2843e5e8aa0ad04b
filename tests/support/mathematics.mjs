// node mathematics.mjs RUNTIME ROOT TESTERS [PYTEST ARGUMENTS]: the tests of the mathematics in the Python of
// browsers. RUNTIME is what `make live` keeps, TESTERS a folder with pytest and hypothesis in it.
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";

const [runtime, root, testers, ...options] = process.argv.slice(2);
const parts = mkdtempSync(join(tmpdir(), "browser-"));
try {
  for (const name of readdirSync(runtime).filter((file) => file.endsWith(".gz")))
    writeFileSync(join(parts, name.slice(0, -3)), gunzipSync(readFileSync(join(runtime, name))));
  const { loadPyodide } = createRequire(import.meta.url)(join(parts, "pyodide.js"));
  const python = await loadPyodide({ indexURL: `${parts}/` });
  await import(join(root, "publishing/live/install.js"));
  const [listed, data] = ["json", "data"].map((end) => readFileSync(join(parts, `packages.${end}`)));
  await install(python, listed, data.buffer);
  for (const [folder, from] of [["/root_of_project", root], ["/testers", testers]]) {
    python.FS.mkdir(folder);
    python.FS.mount(python.FS.filesystems.NODEFS, { root: from }, folder);
  }
  python.globals.set("options", python.toPy(options));
  python.runPython(readFileSync(new URL("mathematics_in_browser.py", import.meta.url), "utf8"));
  process.exitCode = python.globals.get("status");
} catch (error) {
  console.error(`mathematics.mjs: ${error.message}`);
  process.exitCode = 3;
} finally {
  rmSync(parts, { recursive: true });
}
