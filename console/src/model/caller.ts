// The caller whom the server sees, and its permissions.

import { computed, effect, signal } from "@preact/signals";

import { call, hearRefusals, post, Refusal } from "../api/connect.ts";
import type { Caller, Permission } from "../api/types.ts";

export interface Access {
  /** Whether the server knows the caller: `asking` until it has answered, `out` while it needs a key. */
  state: "asking" | "in" | "out";
  /** The caller; while a key is needed, the one before. */
  caller?: Caller;
  /** The reason for which the server does not know the caller any more. */
  problem: string;
}

/** The end of a key while the page is open. */
const ENDED = "Your key has ended, or your login with it. Log in to continue; what is shown is from before.";
/** The end of a server without keys. */
const CLOSED = "This server needs a key from now on. Log in to continue; what is shown is from before.";

export const access = signal<Access>({ state: "asking", problem: "" });

/** Whether the server knows the caller now. */
export const isIn = computed(() => access.value.state === "in");

/** Returns whether the caller has a permission, as far as is known. */
export function may(permission: Permission): boolean {
  return access.value.caller?.permissions?.includes(permission) ?? false;
}

/** Returns whether the caller has a permission for the whole installation, as far as is known. */
export function mayInstallation(permission: Permission): boolean {
  return access.value.caller?.systemPermissions?.includes(permission) ?? false;
}

/** Returns whether the server has no keys, so that everyone may do everything. */
export function isUnlocked(): boolean {
  return access.value.caller?.open ?? false;
}

/** Returns whether a principal is the caller, where callers have keys. */
export function isOwn(principal = ""): boolean {
  return !isUnlocked() && principal === access.value.caller?.principal;
}

let asked: Promise<void> | undefined;

/** Asks the server for the caller. Several questions at once are one. */
export function ask(): Promise<void> {
  asked ??= answer().finally(() => {
    asked = undefined;
  });
  return asked;
}

/** Exchanges a key for the login of this browser. The key is not kept. */
export async function login(key: string): Promise<void> {
  const before = access.value.caller;
  await post("/v1/login", { key });
  await ask();
  // Another principal begins with a page of its own.
  if (before && before.principal !== access.value.caller?.principal) location.reload();
}

/** Ends the login, and leaves nothing of it on the page. */
export async function logout(): Promise<void> {
  await post("/v1/logout", {});
  location.reload();
}

/** Resolves once the server knows the caller. */
export function admitted(): Promise<void> {
  return new Promise((resolve) => {
    const stop = effect(() => {
      if (isIn.value) queueMicrotask(() => (stop(), resolve()));
    });
  });
}

async function answer(): Promise<void> {
  try {
    const { caller } = await call<{ caller: Caller }>("registry.v1.IdentityService/GetCaller", {});
    access.value = { state: "in", caller, problem: "" };
  } catch (error) {
    const code = error instanceof Refusal ? error.code : "";
    // Without a credential there is nothing to explain yet.
    if (code === "unauthenticated") access.value = { ...access.value, state: "out" };
    else if (code === "permission_denied") leave((error as Error).message);
    else if (!isIn.value) access.value = { ...access.value, problem: (error as Error).message };
  }
}

function leave(problem: string): void {
  access.value = { ...access.value, state: "out", problem };
}

hearRefusals(({ code }) => {
  if (!isIn.value) return;
  if (code === "unauthenticated") leave(isUnlocked() ? CLOSED : ENDED);
  // The permissions have changed since the caller was read.
  if (code === "permission_denied") void ask();
});
