import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import { NAVIGATION } from "../navigation";
import { Link, path, pathParts } from "../router";
import { restriction, session } from "../session";
import { setTheme, theme, type Theme } from "../theme";
import { isZone, setZone, zone } from "../time";

/** The frame of every page: the menu, the header with cluster, zone and theme, and the page itself. */
export function Layout({ children }: { children: ComponentChildren }): JSX.Element {
  const [open, setOpen] = useState(false);
  const current = pathParts.value[0] ?? "";
  const sections = [...new Set(NAVIGATION.map((entry) => entry.section))];
  return (
    <div class="frame">
      <a class="skip" href="#content">
        Skip to the page
      </a>
      <header class="header">
        <button class="icon-button menu-button" type="button" aria-expanded={open} aria-controls="menu" onClick={() => setOpen(!open)}>
          Menu
        </button>
        <Link to="/" class="brand">
          <img src="/icon.svg" alt="" width="24" height="24" />
          <span>Headrace</span>
        </Link>
        <span class="cluster" title="Address of the cluster">
          {session.value.data?.bootstrap}
        </span>
        {restriction() !== "" && (
          <span class="badge" title={restriction()}>
            {session.value.data?.read_only ? "read-only" : `role ${session.value.data?.role}`}
          </span>
        )}
        <span class="spacer" />
        <ZoneSwitch />
        <ThemeSwitch />
      </header>
      <nav id="menu" class={open ? "menu open" : "menu"} aria-label="Pages">
        {sections.map((section) => (
          <div class="menu-section" key={section}>
            {section !== "" && <h2>{section}</h2>}
            <ul>
              {NAVIGATION.filter((entry) => entry.section === section).map((entry) => (
                <li key={entry.page}>
                  <Link
                    to={entry.page === "" ? "/" : path(entry.page)}
                    aria-current={entry.page === current ? "page" : undefined}
                    onClickCapture={() => setOpen(false)}
                  >
                    {entry.title}
                  </Link>
                </li>
              ))}
            </ul>
          </div>
        ))}
        <p class="version">{session.value.data && `Version ${session.value.data.version}`}</p>
      </nav>
      <main id="content" class="content" tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}

function ZoneSwitch(): JSX.Element {
  const value = zone();
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const known = ["UTC", "local"];
  const choose = (name: string) => {
    if (name !== "other") return setZone(name);
    const named = window.prompt("Name of a time zone, such as Europe/Berlin", isZone(value) ? value : "");
    if (named !== null && isZone(named.trim())) setZone(named.trim());
    else if (named !== null) window.alert(`${named} is not the name of a time zone.`);
  };
  return (
    <label class="switch">
      <span>Times</span>
      <select value={value} onChange={(event) => choose(event.currentTarget.value)}>
        <option value="UTC">UTC</option>
        <option value="local">local ({local})</option>
        {!known.includes(value) && <option value={value}>{value}</option>}
        <option value="other">other…</option>
      </select>
    </label>
  );
}

function ThemeSwitch(): JSX.Element {
  return (
    <label class="switch">
      <span>Theme</span>
      <select value={theme.value} onChange={(event) => setTheme(event.currentTarget.value as Theme)}>
        <option value="system">system</option>
        <option value="light">light</option>
        <option value="dark">dark</option>
      </select>
    </label>
  );
}
