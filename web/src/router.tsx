// The address bar is the state of a page: its path, its filters, its sort order and the time zone.

import { computed, signal } from "@preact/signals";
import type { AnchorHTMLAttributes, ComponentChildren, JSX } from "preact";

const current = signal(readLocation());

function readLocation(): URL {
  return new URL(window.location.href);
}

window.addEventListener("popstate", () => {
  current.value = readLocation();
});

/** The path, decoded part by part: a topic name may contain an encoded slash. */
export const pathParts = computed(() =>
  current.value.pathname.split("/").filter(Boolean).map(decoded),
);

/** A part that is not valid (`%zz`) is shown as it is; the page then tells that there is no such object. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** A parameter of the address; "" if it is absent. */
export function param(name: string): string {
  return current.value.searchParams.get(name) ?? "";
}

/** Changes parameters of the address. `push` adds an entry to the browser's history. */
export function setParams(changes: Record<string, string>, push = false): void {
  const url = readLocation();
  for (const [name, value] of Object.entries(changes)) {
    if (value === "") url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  go(url, push);
}

export function navigate(to: string): void {
  go(new URL(withZone(to), window.location.href), true);
  window.scrollTo(0, 0);
}

function go(url: URL, push: boolean): void {
  if (url.href === window.location.href) return;
  if (push) window.history.pushState(null, "", url);
  else window.history.replaceState(null, "", url);
  current.value = readLocation();
}

/** The time zone goes with every link, so that an address shows the same times to everybody. */
function withZone(to: string): string {
  const zone = param("tz");
  if (zone === "") return to;
  const url = new URL(to, window.location.href);
  if (!url.searchParams.has("tz")) url.searchParams.set("tz", zone);
  return url.pathname + url.search;
}

/** A path of encoded parts: `path("topics", name)`. */
export function path(...parts: (string | number)[]): string {
  return "/" + parts.map((part) => encodeURIComponent(String(part))).join("/");
}

interface LinkProps extends Omit<AnchorHTMLAttributes<HTMLAnchorElement>, "href" | "role"> {
  to: string;
  children: ComponentChildren;
}

/** A link inside of the console. Other clicks (new tab, new window) stay the browser's. */
export function Link({ to, children, ...rest }: LinkProps): JSX.Element {
  const follow = (event: MouseEvent) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    navigate(to);
  };
  return (
    <a {...rest} href={withZone(to)} onClick={follow}>
      {children}
    </a>
  );
}
