// A unit is [factor, offset]: a value times the factor plus the offset is in the base unit of its kind.
const fs = require("fs");
const path = require("path");

const kinds = JSON.parse(fs.readFileSync(path.join(__dirname, "../data/units.json"), "utf8"));

function kindOf(unit) {
  return Object.keys(kinds).find((kind) => Object.hasOwn(kinds[kind], unit));
}

function convert({ value, from, to }) {
  const kind = kindOf(from);
  for (const unit of [from, to]) {
    if (!kindOf(unit)) throw new Error(`the unit '${unit}' is not known`);
  }
  if (kind !== kindOf(to)) throw new Error(`'${from}' is a ${kind}, '${to}' a ${kindOf(to)}`);
  const [factor, offset = 0] = kinds[kind][from];
  const [toFactor, toOffset = 0] = kinds[kind][to];
  const result = (value * factor + offset - toOffset) / toFactor;
  return { value: Number(result.toPrecision(10)), unit: to, kind };
}

let answer;
try {
  answer = { status: "success", result: convert(JSON.parse(fs.readFileSync(0, "utf8"))) };
} catch (error) {
  answer = { status: "error", error: error.message };
}
console.log(JSON.stringify(answer));
