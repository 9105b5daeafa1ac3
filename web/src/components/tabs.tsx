import type { JSX } from "preact";
import { Link } from "../router";

export interface Tab {
  to: string;
  title: string;
  current: boolean;
}

/** Links to the parts of a subject. Each part has its own address. */
export function Tabs({ label, tabs }: { label: string; tabs: Tab[] }): JSX.Element {
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map((tab) => (
        <Link key={tab.to} to={tab.to} aria-current={tab.current ? "page" : undefined}>
          {tab.title}
        </Link>
      ))}
    </nav>
  );
}
