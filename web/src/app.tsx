import { lazy, Suspense } from "preact/compat";
import type { ComponentType, JSX } from "preact";
import { useEffect } from "preact/hooks";
import { pathParts } from "./router";
import { Layout } from "./components/layout";
import { Loading } from "./components/states";
import { Notices } from "./components/notices";
import { loadSession, session } from "./session";
import { NAVIGATION } from "./navigation";
import { ErrorText } from "./components/states";

type Page = ComponentType<{ parts: string[] }>;
type Loader = () => Promise<{ default: Page }>;

/** The first part of a path selects the page; the page reads the others. Each is loaded when it is shown. */
const PAGES: Record<string, Page> = Object.fromEntries(
  Object.entries({
    "": () => import("./pages/overview"),
    topics: () => import("./pages/topics"),
    groups: () => import("./pages/groups"),
    "dead-letters": () => import("./pages/dead_letters"),
    lineage: () => import("./pages/lineage"),
    queries: () => import("./pages/queries"),
    retention: () => import("./pages/retention"),
    schemas: () => import("./pages/schemas"),
    sql: () => import("./pages/sql"),
    access: () => import("./pages/access"),
    connectors: () => import("./pages/connectors"),
    "client-metrics": () => import("./pages/client_metrics"),
    brokers: () => import("./pages/brokers"),
    transactions: () => import("./pages/transactions"),
  } satisfies Record<string, Loader>).map(([name, load]) => [name, lazy(load as Loader) as Page]),
);

export function App(): JSX.Element {
  useEffect(() => void loadSession(), []);
  const parts = pathParts.value;
  const name = parts[0] ?? "";
  const Current = PAGES[name];
  const title = NAVIGATION.find((entry) => entry.page === name)?.title;
  useEffect(() => {
    document.title = [parts.length > 1 ? parts.slice(1).join(" / ") : "", title ?? "", "Headrace"].filter(Boolean).join(" · ");
  }, [parts.join("/"), title]);
  const { data, error } = session.value;
  return (
    <Layout>
      {error !== undefined && <ErrorText error={error} />}
      {data !== undefined &&
        (Current === undefined ? (
          <div class="page">
            <h1>Page not found</h1>
            <p>The console has no page {window.location.pathname}.</p>
          </div>
        ) : (
          <Suspense fallback={<Loading />}>
            <Current parts={parts.slice(1)} />
          </Suspense>
        ))}
      <Notices />
    </Layout>
  );
}
