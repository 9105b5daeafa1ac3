import type { JSX } from "preact";
import { Tabs } from "../components/tabs";
import { Unavailable } from "../components/states";
import { path } from "../router";
import { has, restriction } from "../session";
import { Acls } from "./access_acls";
import { Quotas } from "./access_quotas";
import { Users } from "./access_users";

const PARTS: Record<string, string> = { users: "Users", acls: "ACLs", quotas: "Quotas" };

/** `/access/users`, `/access/acls` and `/access/quotas`. */
export default function Access({ parts }: { parts: string[] }): JSX.Element {
  const part = parts[0] ?? "users";
  return (
    <div class="page">
      <div class="page-head">
        <h1>Access</h1>
      </div>
      <Tabs label="Parts" tabs={Object.entries(PARTS).map(([key, title]) => ({ to: path("access", key), title, current: key === part }))} />
      {!has("admin") ? <Unavailable why={restriction()} /> : part === "acls" ? <Acls /> : part === "quotas" ? <Quotas /> : <Users />}
    </div>
  );
}
