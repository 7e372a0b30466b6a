// The tools of an agent, in its profile.

import { call } from "../api/connect.ts";
import type { Profile } from "../api/types.ts";

/** Lets an agent use a tool. Returns its name. */
export async function addTool(profileId: string, toolId: string): Promise<string> {
  const { profile } = await call<{ profile: Profile }>("agent.v1.ProfileService/GetProfile", { profileId });
  const profileJson = withTool(profile.profileJson, toolId);
  await call("agent.v1.ProfileService/PutProfile", { profileJson, etag: profile.etag });
  return profile.name || profileId;
}

/** Returns a profile with a tool in its inventory, which it is in once. */
export function withTool(profileJson = "{}", toolId: string): string {
  const file = JSON.parse(profileJson) as { tool_ids_inventory?: string[] | null };
  const inventory = file.tool_ids_inventory ?? [];
  return JSON.stringify({ ...file, tool_ids_inventory: [...new Set([...inventory, toolId])] }, null, 2);
}
