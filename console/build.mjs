// Builds the page into the directory that is given. The same sources give the same bytes.
import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";
import { join } from "node:path";

const to = process.argv[2];
if (!to) throw new Error("usage: node build.mjs DIRECTORY");
await mkdir(to, { recursive: true });
await build({
  absWorkingDir: import.meta.dirname,
  entryPoints: { console: "src/main.tsx" },
  outdir: to,
  bundle: true,
  minify: true,
  charset: "utf8",
  format: "iife",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "eof",
});
for (const name of ["index.html", "console.css", "icon.svg"]) {
  await copyFile(join(import.meta.dirname, "static", name), join(to, name));
}
