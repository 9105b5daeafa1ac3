// What this console can do and who uses it, asked once at start.

import { signal } from "@preact/signals";
import { ApiError, get } from "./api";

export interface Session {
  version: string;
  bootstrap: string;
  principal: string | null;
  read_only: boolean;
  has_registry: boolean;
  has_connect: boolean;
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
  return session.value.data?.read_only === false;
}
