import assert from "node:assert/strict";
import { test } from "node:test";

import { withTool } from "../src/model/inventory.ts";

test("a tool is in an inventory once, and the rest of the profile stays", () => {
  assert.equal(withTool('{"id":"ada"}', "Look"), withTool('{"id":"ada","tool_ids_inventory":null}', "Look"));
  const profile = JSON.stringify({ tool_ids_inventory: ["Look"], id: "ada" });
  assert.deepEqual(JSON.parse(withTool(profile, "dice:roll")), { tool_ids_inventory: ["Look", "dice:roll"], id: "ada" });
  assert.deepEqual(JSON.parse(withTool(profile, "Look")), JSON.parse(profile));
});
