// Statements that were run in this browser, newest first. They never leave it.

import { session } from "./session";

export interface PastText {
  text: string;
  /** Milliseconds since 1970. */
  at: number;
}

const MOST_TEXTS = 100;
const MOST_CHARACTERS = 20_000;

function place(): string {
  return `headrace.sql.history ${session.value.data?.bootstrap ?? ""}`;
}

export function pastTexts(): PastText[] {
  try {
    const found: unknown = JSON.parse(window.localStorage.getItem(place()) ?? "[]");
    return Array.isArray(found) ? (found as PastText[]).filter((each) => typeof each?.text === "string" && typeof each.at === "number") : [];
  } catch {
    return [];
  }
}

/** Remembers a text. Settings of connectors may be passwords, so that texts with them are not stored. */
export function rememberText(text: string): void {
  const trimmed = text.trim();
  if (trimmed === "" || trimmed.length > MOST_CHARACTERS || /\bconnector\b/i.test(trimmed)) return;
  store([{ text: trimmed, at: Date.now() }, ...pastTexts().filter((each) => each.text !== trimmed)].slice(0, MOST_TEXTS));
}

export function forgetTexts(): void {
  store([]);
}

function store(texts: PastText[]): void {
  try {
    window.localStorage.setItem(place(), JSON.stringify(texts));
  } catch {
    // The browser stores nothing for this page, or has no room.
  }
}
