import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import { Refusal } from "../api/connect.ts";
import type { Permission } from "../api/types.ts";
import { access, isUnlocked, login, logout, may } from "../model/caller.ts";

/** The refusal of a key for a person at a form, who sends no headers. */
const UNKNOWN = "The server does not accept this key. It may be mistyped, expired or revoked.";

/** Asks for a key. */
export function Login() {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState("");
  const send = async () => {
    try {
      await login(key.trim());
      setProblem("");
    } catch (error) {
      const unknown = error instanceof Refusal && error.code === "unauthenticated";
      setProblem(unknown ? UNKNOWN : (error as Error).message);
    }
  };
  return (
    <form
      aria-label="Log in"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <label class="field">
        <span>Key</span>
        <input type="password" autocomplete="off" required value={key} onInput={(event) => setKey(event.currentTarget.value)} />
        <small>An administrator makes one: <code>tavern keys create</code></small>
      </label>
      {problem && <p class="problem" role="alert">{problem}</p>}
      <button type="submit" class="primary">Log in</button>
    </form>
  );
}

/** The caller and its roles, with a button that ends the login. */
export function Who() {
  const [problem, setProblem] = useState("");
  const { principal, roles = [] } = access.value.caller ?? {};
  if (isUnlocked()) return <p class="who quiet">open: no keys</p>;
  return (
    <div class="who" role="group" aria-label="Caller">
      <span class="name">{principal}</span>
      <span class="quiet">{roles.join(", ")}</span>
      <button type="button" class="quiet-button" onClick={() => void logout().catch((error: Error) => setProblem(error.message))}>
        Log out
      </button>
      {problem && <span class="problem" role="alert">{problem}</span>}
    </div>
  );
}

/** Controls for callers with a permission. Others see `instead`, and which permission is missing. */
export function Allowed({ permission, instead, children }: { permission: Permission; instead?: ComponentChildren; children: ComponentChildren }) {
  if (may(permission)) return <>{children}</>;
  return (
    <>
      {instead}
      <p class="note">{`You may read this; the permission ${permission} is missing.`}</p>
    </>
  );
}
