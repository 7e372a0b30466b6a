import { readFileSync, writeSync } from "node:fs";
import { parseArgs } from "node:util";
import { primes } from "./sieve.mjs";

const { values } = parseArgs({ options: { part: { type: "string" } } });
const part = Number(values.part);
const { limit } = JSON.parse(readFileSync(0, "utf8"));

const descriptor = Number(process.env.TAVERN_PROGRESS_FD);
const report = (progress, message) => writeSync(descriptor, JSON.stringify({ progress, message }) + "\n");

let count = 0;
let largest = null;
let next = part;
for (const prime of primes(limit)) {
  if (prime > next) {
    report(next / limit, `${count} primes up to ${next}`);
    // A person who follows the run sees this line at once.
    console.error(`up to ${next} the largest is ${largest}`);
    next += part;
  }
  count += 1;
  largest = prime;
}
if (count === 0) throw new Error(`there is no prime up to ${limit}`);
console.log(JSON.stringify({ count, largest }));
