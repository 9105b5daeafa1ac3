// Light or dark: the system's choice unless the user has made one.

import { signal } from "@preact/signals";

const STORED = "headrace-theme";
export type Theme = "system" | "light" | "dark";

function stored(): Theme {
  try {
    const value = window.localStorage.getItem(STORED);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

export const theme = signal<Theme>(stored());
apply();

export function setTheme(value: Theme): void {
  theme.value = value;
  try {
    window.localStorage.setItem(STORED, value);
  } catch {
    // A browser without storage forgets the choice.
  }
  apply();
}

function apply(): void {
  document.documentElement.dataset["theme"] = theme.value;
}
