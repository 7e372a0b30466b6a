// Builds the program of the page into the directory that is given. The same sources give the same bytes.
// The gateway embeds the files of static/ as they stand.
import { build } from "esbuild";
import { mkdir } from "node:fs/promises";

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
