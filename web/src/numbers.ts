// Numbers as people read them. 64-bit numbers are strings and stay exact.

import type { Long } from "./api";

/** `12,345,678`. */
export function count(value: Long | number | null | undefined): string {
  if (value === null || value === undefined) return "";
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** `1.5 MB`, in powers of ten. */
export function bytes(value: Long | number | null | undefined): string {
  if (value === null || value === undefined) return "";
  let amount = Number(value);
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (Math.abs(amount) >= 1000 && unit < units.length - 1) {
    amount /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? amount : amount.toFixed(amount < 10 ? 2 : amount < 100 ? 1 : 0)} ${units[unit]}`;
}

/** `1.2 k/s`. */
export function rate(perSecond: number, unit = ""): string {
  const shown = perSecond >= 10_000 ? `${(perSecond / 1000).toFixed(0)} k` : perSecond >= 100 ? perSecond.toFixed(0) : perSecond.toFixed(1);
  return `${shown}${unit === "" ? "" : ` ${unit}`}/s`;
}
