/* Puts what pack.py gathered into Pyodide. `listed` is JSON: the size of each file by its path, and the
   libraries that are loaded at once; `data` holds all files in that order, and is not copied. */
globalThis.install = async (python, listed, data) => {
  const site = "/lib/python3.12/site-packages";
  const { sizes, libraries } = JSON.parse(new TextDecoder().decode(listed));
  let from = 0;
  for (const [path, size] of Object.entries(sizes)) {
    const file = `${site}/${path}`;
    python.FS.mkdirTree(file.slice(0, file.lastIndexOf("/")));
    python.FS.writeFile(file, new Uint8Array(data, from, size), { canOwn: true });
    from += size;
  }
  // An import that loads one looks through all symbols each time: some twenty milliseconds.
  for (const [path, isShared] of libraries)
    await python._api.loadDynlib(`${site}/${path}`, isShared);
  python._module.reportUndefinedSymbols();
};
