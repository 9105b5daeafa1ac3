// The entries of the menu, by subject.

export interface Entry {
  /** First part of the path. */
  page: string;
  title: string;
  section: string;
}

export const NAVIGATION: readonly Entry[] = [
  { page: "", title: "Overview", section: "" },
  { page: "topics", title: "Topics", section: "Data" },
  { page: "groups", title: "Consumer groups", section: "Data" },
  { page: "schemas", title: "Schemas", section: "Data" },
  { page: "dead-letters", title: "Dead letters", section: "Data" },
  { page: "lineage", title: "Lineage", section: "Data" },
  { page: "connectors", title: "Connectors", section: "Data" },
  { page: "sql", title: "SQL", section: "Data" },
  { page: "queries", title: "Spark queries", section: "Data" },
  { page: "retention", title: "Retention", section: "Data" },
  { page: "transactions", title: "Transactions", section: "Data" },
  { page: "brokers", title: "Brokers", section: "Cluster" },
  { page: "client-metrics", title: "Client metrics", section: "Cluster" },
  { page: "access", title: "Access", section: "Cluster" },
];
