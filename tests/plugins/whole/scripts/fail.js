const { way } = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
const TYPES = {
  domain: "ScriptError",
  dependency: "DependencyError",
  security: "SecurityError",
  timeout: "TimeoutError",
};

if (way in TYPES) {
  const error = { type: TYPES[way], message: `failed by ${way}`, details: { way } };
  console.log(JSON.stringify({ success: false, error }));
} else if (way === "exit") {
  console.error("the code says that it failed");
  process.exitCode = 3;
} else if (way === "prose") {
  console.log("This is no JSON.");
} else if (way === "wait") {
  setTimeout(() => console.log("null"), 60_000);
}
