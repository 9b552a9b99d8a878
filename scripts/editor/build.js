// entry.js and what it needs -> inlayer/learn/page/editor.js, its licenses beside it, and its sum.

import { build } from "esbuild";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const page = join(here, "../../inlayer/learn/page");

const { metafile, outputFiles } = await build({
  absWorkingDir: here,
  entryPoints: ["entry.js"],
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "ascii",
  legalComments: "none",
  metafile: true,
  write: false,
});
const bundle = outputFiles[0].text.trimEnd() + "\n";
if (/<\/script|<!--|\{\{/i.test(bundle)) throw new Error("the bundle would break out of its <script>");

const used = Object.keys(metafile.inputs).map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]);
const packages = [...new Set(used.filter(Boolean))].sort();
const licenses = packages.map((name) => {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
  if (license !== "MIT" || !file) throw new Error(`${name} is not under the MIT license, or does not carry it`);
  return `${name} ${version}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
});
const rule = "\n" + "-".repeat(72) + "\n\n";
const head = "editor.js is made by scripts/editor/build.js of these packages, each under the MIT license.\n";

writeFileSync(join(page, "editor.js"), bundle);
writeFileSync(join(page, "editor.LICENSE.txt"), [head, ...licenses].join(rule));
writeFileSync(join(page, "editor.sha256"), createHash("sha256").update(bundle).digest("hex") + "  editor.js\n");
console.log(`editor.js: ${bundle.length} bytes of ${packages.length} packages`);
