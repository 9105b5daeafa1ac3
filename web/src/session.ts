// What this console can do and who uses it, asked once at start.

import { signal } from "@preact/signals";
import { ApiError, get } from "./api";

const ROLES = ["view", "read", "write", "admin"] as const;
export type Role = (typeof ROLES)[number];

export interface Session {
  version: string;
  bootstrap: string;
  principal: string | null;
  /** What the user may do; each role includes the ones before it. */
  role: Role;
  read_only: boolean;
  has_registry: boolean;
  has_connect: boolean;
  has_sql: boolean;
}

export const session = signal<{ data?: Session; error?: ApiError }>({});

export async function loadSession(): Promise<void> {
  try {
    session.value = { data: await get<Session>("/session") };
  } catch (error) {
    session.value = { error: error instanceof ApiError ? error : new ApiError(0, String(error)) };
  }
}

/** Whether the forms that change something are shown. */
export function mayChange(): boolean {
  return session.value.data?.read_only === false && has("write");
}

/** Whether the forms of brokers, transactions and access are shown. */
export function mayAdminister(): boolean {
  return session.value.data?.read_only === false && has("admin");
}

/** Whether the user has a role, or one that includes it. */
export function has(role: Role): boolean {
  const data = session.value.data;
  return data !== undefined && ROLES.indexOf(data.role) >= ROLES.indexOf(role);
}

/** Why forms are missing; empty if none is. */
export function restriction(): string {
  const data = session.value.data;
  if (data === undefined) return "";
  if (data.read_only) return "This console is read-only.";
  const name = data.principal === null ? "You have" : `${data.principal} has`;
  const what = { view: "records and access are not shown, and nothing can be changed", read: "access is not shown, and nothing can be changed", write: "access is not shown, and brokers and transactions cannot be changed", admin: "" }[data.role];
  return what === "" ? "" : `${name} the role ${data.role}: ${what}.`;
}
