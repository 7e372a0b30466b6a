"use strict";

const text = (cell) => String(cell ?? "").replace(/\|/g, "\\|").replace(/\s*\n\s*/g, " ");

/** Returns the lines of a table whose rows all have the same number of cells. */
function table([head, ...body], { align }) {
  const isNumeric = head.map((_, at) => body.length > 0 && body.every((row) => typeof row[at] === "number"));
  const toRight = isNumeric.map((numeric) => numeric && align === "right");
  const cells = [head, ...body].map((row) => row.map(text));
  const widths = head.map((_, at) => Math.max(3, ...cells.map((row) => [...row[at]].length)));
  const padded = (cell, at) => {
    const space = " ".repeat(widths[at] - [...cell].length);
    return toRight[at] ? space + cell : cell + space;
  };
  const rule = widths.map((width, at) => (toRight[at] ? "-".repeat(width - 1) + ":" : "-".repeat(width)));
  const lines = cells.map((row) => row.map(padded));
  lines.splice(1, 0, rule);
  return lines.map((row) => `| ${row.join(" | ")} |`).join("\n");
}

module.exports = { table };
