import assert from "node:assert/strict";
import { test } from "node:test";

import { Refusal } from "../src/api/connect.ts";
import type { PluginOption } from "../src/api/types.ts";
import { changesOf, optionFields, problemsOf } from "../src/model/options.ts";

const option = (name: string, type: string, declaration: object = {}, value?: unknown): PluginOption => ({
  key: `extensions.dice.${name}`,
  type,
  declarationJson: JSON.stringify(declaration),
  ...(value !== undefined && { valueJson: JSON.stringify(value) }),
});

const FIELDS = optionFields([
  option("sides", "integer", { required: true, minimum: 2, maximum: 100 }),
  option("greeting", "string", { default: "Hi", maxLength: 20 }, "Hi"),
  option("names", "string_list", { minItems: 0, maxItems: 5 }, ["Ada", "Mara"]),
  option("rules", "json", {}, { a: 1 }),
  option("mode", "enum", { options: [{ value: "fair", label: "Fair" }, { value: "loaded", label: "" }] }),
  option("seed", "integer", { minimum: -9223372036854775808, maximum: 9223372036854775807 }),
  { ...option("token", "secret"), isSet: true },
]);

const key = (name: string) => `extensions.dice.${name}`;

test("a field has the control, the bounds and the value of its option", () => {
  const facts = FIELDS.map(({ title, control, bounds, initial }) => [title, control, bounds, initial]);
  assert.deepEqual(facts, [
    ["sides", "line", "2 to 100", ""],
    ["greeting", "line", "at most 20 characters, Hi by default", "Hi"],
    ["names", "text", "at most 5 items", "Ada\nMara"],
    ["rules", "json", "", '{\n  "a": 1\n}'],
    ["mode", "choice", "", ""],
    ["seed", "line", "", ""],
    ["token", "secret", "", ""],
  ]);
  assert.deepEqual(FIELDS[4]?.labels, { fair: "Fair", loaded: "loaded" });
});

test("only values that were changed are sent, secrets apart from the texts", () => {
  assert.deepEqual(changesOf(FIELDS, {}), { valuesJson: "", texts: {} });
  const edits = {
    [key("sides")]: "6",
    [key("greeting")]: "Hi",
    [key("names")]: "Ada\n\n Omar, Sage \n",
    [key("rules")]: null,
    [key("token")]: "s3cret",
  };
  assert.deepEqual(changesOf(FIELDS, edits), {
    valuesJson: JSON.stringify({ [key("rules")]: null, [key("token")]: "s3cret" }),
    texts: { [key("sides")]: "6", [key("names")]: '["Ada","Omar, Sage"]' },
  });
});

test("an emptied field is an empty text, and an emptied secret is left as it is", () => {
  assert.deepEqual(changesOf(FIELDS, { [key("greeting")]: "", [key("names")]: " ", [key("token")]: "" }), {
    valuesJson: "",
    texts: { [key("greeting")]: "", [key("names")]: "" },
  });
});

test("every violation is beside its option, and others are beside none", () => {
  const refusal = new Refusal("invalid_argument", "invalid", [
    { field: `texts/${key("sides")}`, description: "is 1" },
    { field: `values_json/${key("rules")}/a`, description: "is wrong" },
    { field: "name", description: "is long" },
  ]);
  assert.deepEqual(problemsOf(refusal, FIELDS), {
    [key("sides")]: ["is 1"],
    [key("rules")]: ["/a: is wrong"],
    "": ["name: is long"],
  });
  assert.deepEqual(problemsOf(new Error("away"), FIELDS), { "": ["away"] });
});
