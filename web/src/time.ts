// Times are shown in one zone on all pages, and the zone is always printed. The choice is in the address (`tz`) and is
// remembered by the browser.

import { param, setParams } from "./router";
import type { Long } from "./api";

const STORED = "headrace-zone";

/** "UTC", "local", or the name of a zone. */
export function zone(): string {
  return param("tz") || stored() || "UTC";
}

export function setZone(name: string): void {
  try {
    window.localStorage.setItem(STORED, name);
  } catch {
    // A browser without storage forgets the choice.
  }
  setParams({ tz: name });
}

function stored(): string {
  try {
    return window.localStorage.getItem(STORED) ?? "";
  } catch {
    return "";
  }
}

const formats = new Map<string, Intl.DateTimeFormat>();

function format(name: string): Intl.DateTimeFormat {
  let found = formats.get(name);
  if (found === undefined) {
    const options: Intl.DateTimeFormatOptions = {
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
      fractionalSecondDigits: 3,
      hourCycle: "h23",
      timeZoneName: "shortOffset",
    };
    if (name !== "local") options.timeZone = name;
    found = new Intl.DateTimeFormat("en-GB", options);
    formats.set(name, found);
  }
  return found;
}

export function isZone(name: string): boolean {
  try {
    format(name);
    return true;
  } catch {
    return false;
  }
}

/** The latest moment that JavaScript's dates can hold. */
const LATEST_MS = 8_640_000_000_000_000n;

/** `2026-11-16 14:03:07.123 UTC`. A timestamp outside of the calendar is shown as a number. */
export function timeText(ms: Long | number | null | undefined, withMilliseconds = true, withZone = true): string {
  if (ms === null || ms === undefined || ms === "") return "";
  let exact: bigint;
  try {
    exact = BigInt(ms);
  } catch {
    return String(ms);
  }
  if (exact < 0n) return exact === -1n ? "no timestamp" : `${exact} ms`;
  if (exact > LATEST_MS) return `${exact} ms`;
  const name = isZone(zone()) ? zone() : "UTC";
  const parts = new Map(format(name).formatToParts(Number(exact)).map((part) => [part.type, part.value]));
  const day = `${parts.get("year")}-${parts.get("month")}-${parts.get("day")}`;
  const clock = `${parts.get("hour")}:${parts.get("minute")}:${parts.get("second")}`;
  const fraction = withMilliseconds ? `.${parts.get("fractionalSecond")}` : "";
  return `${day} ${clock}${fraction}${withZone ? ` ${offsetText(parts.get("timeZoneName"))}` : ""}`;
}

function offsetText(name = "GMT"): string {
  return name.replace(/^GMT/, "UTC").replace(/^UTC\+0$/, "UTC");
}

const TIME = /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?)?\s*(Z|(?:UTC)?[+-]\d{1,2}(?::?\d\d)?|UTC)?$/i;

/**
 * The moment of a text such as `2026-11-16 14:03:07`: in the zone in which times are shown, unless an offset follows
 * it. Null if it is not a time. Of an hour that a change of the clocks repeats, it is the first one.
 */
export function parseTime(text: string): number | null {
  const found = TIME.exec(text.trim());
  if (found === null) return null;
  const number = (at: number) => Number(found[at] ?? 0);
  const [month, day] = [number(2), number(3)];
  const clock = Date.UTC(number(1), month - 1, day, number(4), number(5), number(6), Number((found[7] ?? "").padEnd(3, "0") || 0));
  const read = new Date(clock);
  if (read.getUTCMonth() !== month - 1 || read.getUTCDate() !== day || number(4) > 23 || number(5) > 59 || number(6) > 59) return null;
  if (found[8] !== undefined) return clock - offsetOf(found[8]);
  const name = isZone(zone()) ? zone() : "UTC";
  const moments = [clock - 86_400_000, clock + 86_400_000].map((near) => clock - offsetAt(near, name));
  const exact = moments.filter((moment) => moment + offsetAt(moment, name) === clock);
  // A time that a change of the clocks leaves out is read with the offset before it.
  return exact.length > 0 ? Math.min(...exact) : moments[0]!;
}

function offsetOf(text: string): number {
  const found = /([+-])(\d{1,2}):?(\d\d)?$/.exec(text);
  if (found === null) return 0;
  return (found[1] === "-" ? -1 : 1) * (Number(found[2]) * 60 + Number(found[3] ?? 0)) * 60_000;
}

/** The offset of a zone at a moment, in milliseconds. */
function offsetAt(ms: number, name: string): number {
  const parts = new Map(format(name).formatToParts(ms).map((part) => [part.type, Number(part.value)]));
  const get = (type: Intl.DateTimeFormatPartTypes) => parts.get(type) ?? 0;
  const whole = Math.floor(ms / 1000) * 1000;
  return Date.UTC(get("year"), get("month") - 1, get("day"), get("hour"), get("minute"), get("second")) - whole;
}

/** What `parseTime` accepts, for an error. */
export function notATime(text: string): string {
  return `${text} is not a time such as 2026-11-16 14:03:00`;
}

/** `3 d 4 h`, `5 min 20 s`, `340 ms`. */
export function durationText(ms: number): string {
  if (!Number.isFinite(ms)) return "";
  if (ms < 0) return `-${durationText(-ms)}`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.floor(ms / 1000);
  const units: [number, string][] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = units.findIndex(([size]) => seconds >= size);
  const [large, largeName] = units[first]!;
  const text = `${Math.floor(seconds / large)} ${largeName}`;
  const next = units[first + 1];
  if (next === undefined) return text;
  const rest = Math.floor((seconds % large) / next[0]);
  return rest === 0 ? text : `${text} ${rest} ${next[1]}`;
}

/** Name of the zone, for the heading of a column whose times do not repeat it. */
export function zoneText(): string {
  const name = isZone(zone()) ? zone() : "UTC";
  return name === "local" ? Intl.DateTimeFormat().resolvedOptions().timeZone : name;
}
