"use strict";

const { readFileSync } = require("node:fs");
const { table } = require("./lib/table.js");

const { rows } = JSON.parse(readFileSync(0, "utf8"));
const options = JSON.parse(readFileSync(process.env.TAVERN_OPTIONS, "utf8"));
const ragged = rows.findIndex((row) => row.length !== rows[0].length);
if (ragged >= 0) {
  const message = `row ${ragged + 1} has ${rows[ragged].length} cells, the head has ${rows[0].length}`;
  process.stdout.write(JSON.stringify({ success: false, error: { message, details: { row: ragged + 1 } } }));
  process.exitCode = 1;
} else {
  process.stdout.write(JSON.stringify(table(rows, options)));
}
