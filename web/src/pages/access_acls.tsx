import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post, useData } from "../api";
import { Dialog, quoted } from "../components/dialog";
import { Field, Filter, TextField } from "../components/field";
import { notify } from "../components/notices";
import { Badge, Shown } from "../components/states";
import { Table, byText } from "../components/table";
import { count } from "../numbers";
import { param, setParams } from "../router";
import { mayAdminister } from "../session";

interface Acl {
  type: string;
  pattern: string;
  name: string;
  principal: string;
  host: string;
  operation: string;
  permission: string;
}

interface AclsInfo {
  acls: Acl[];
  operations: Record<string, string[]>;
}

const NEW: Acl = { type: "TOPIC", pattern: "LITERAL", name: "", principal: "User:", host: "*", operation: "READ", permission: "ALLOW" };

export function Acls(): JSX.Element {
  const acls = useData<AclsInfo>("/acls", 5000);
  const [form, setForm] = useState<{ kind: "add" | "delete"; acl: Acl } | null>(null);
  const text = param("q").toLowerCase();
  const close = () => {
    setForm(null);
    acls.reload();
  };
  return (
    <>
      <div class="toolbar">
        <Filter label="Filter by user or resource" value={param("q")} onInput={(value) => setParams({ q: value })} />
        {mayAdminister() && acls.data !== undefined && (
          <button type="button" class="primary" onClick={() => setForm({ kind: "add", acl: NEW })}>
            Add ACL
          </button>
        )}
      </div>
      <Shown of={acls}>
        {(data) => (
          <Table
            label="ACLs"
            rows={data.acls.filter((row) => `${row.principal} ${row.name} ${row.type}`.toLowerCase().includes(text))}
            id={(row) => Object.values(row).join("\n")}
            empty={text === "" ? "The cluster has no ACLs." : "No ACL matches."}
            columns={[
              { key: "principal", title: "Principal", cell: (row) => row.principal, compare: byText((row) => row.principal) },
              { key: "permission", title: "Permission", cell: (row) => <Badge kind={row.permission === "DENY" ? "bad" : "ok"}>{row.permission.toLowerCase()}</Badge>, compare: byText((row) => row.permission) },
              { key: "operation", title: "Operation", cell: (row) => row.operation.toLowerCase().replaceAll("_", " "), compare: byText((row) => row.operation) },
              { key: "resource", title: "Resource", cell: (row) => `${row.type.toLowerCase().replaceAll("_", " ")} ${row.name}${row.pattern === "PREFIXED" ? "…" : ""}`, compare: byText((row) => row.type + row.name) },
              { key: "host", title: "Host", cell: (row) => (row.host === "*" ? "any" : row.host), optional: true },
              {
                key: "delete",
                title: "Action",
                cell: (row) =>
                  mayAdminister() && (
                    <button type="button" class="link" aria-label={`Delete the ACL of ${row.principal} for ${row.name}`} onClick={() => setForm({ kind: "delete", acl: row })}>
                      Delete
                    </button>
                  ),
              },
            ]}
          />
        )}
      </Shown>
      {form?.kind === "add" && acls.data !== undefined && <AddAcl operations={acls.data.operations} onClose={close} />}
      {form?.kind === "delete" && (
        <Dialog
          title="Delete ACL"
          action="Delete"
          dangerous
          command={command("remove", form.acl)}
          onClose={close}
          onSubmit={async () => {
            const { deleted } = await post<{ deleted: Acl[] }>("/acls/delete", form.acl);
            notify(`${count(deleted.length)} ACL was deleted.`);
          }}
        >
          <p>
            {form.acl.principal} loses: {form.acl.permission.toLowerCase()} {form.acl.operation.toLowerCase()} on {form.acl.type.toLowerCase()} {form.acl.name}.
          </p>
        </Dialog>
      )}
    </>
  );
}

function AddAcl({ operations, onClose }: { operations: Record<string, string[]>; onClose: () => void }): JSX.Element {
  const [acl, setAcl] = useState(NEW);
  const set = (changes: Partial<Acl>) => setAcl({ ...acl, ...changes });
  const choices = (label: string, key: keyof Acl, values: string[]) => (
    <Field label={label}>
      <select value={acl[key]} onChange={(event) => set({ [key]: event.currentTarget.value })}>
        {values.map((each) => (
          <option key={each} value={each}>
            {each.toLowerCase().replaceAll("_", " ")}
          </option>
        ))}
      </select>
    </Field>
  );
  return (
    <Dialog
      title="Add ACL"
      action="Add"
      command={command("add", acl)}
      onClose={onClose}
      onSubmit={async () => {
        await post("/acls", acl);
        notify("The ACL was added.");
      }}
    >
      <TextField label="Principal" value={acl.principal} onInput={(principal) => set({ principal })} required placeholder="User:alice" />
      {choices("Permission", "permission", ["ALLOW", "DENY"])}
      {choices("Resource type", "type", Object.keys(operations))}
      <TextField label="Resource name" value={acl.name} onInput={(name) => set({ name })} required placeholder={acl.type === "CLUSTER" ? "kafka-cluster" : "a name, or * for all"} />
      {choices("Pattern", "pattern", ["LITERAL", "PREFIXED"])}
      {choices("Operation", "operation", operations[acl.type] ?? [])}
      <TextField label="Host" value={acl.host} onInput={(host) => set({ host })} required />
    </Dialog>
  );
}

const RESOURCES: Record<string, string> = { TOPIC: "--topic", GROUP: "--group", TRANSACTIONAL_ID: "--transactional-id", DELEGATION_TOKEN: "--delegation-token", USER: "--user-principal" };

function command(verb: string, acl: Acl): string {
  const resource = acl.type === "CLUSTER" ? "--cluster" : `${RESOURCES[acl.type] ?? "--topic"} ${quoted(acl.name || "NAME")}`;
  const permission = acl.permission.toLowerCase();
  return [
    `headrace acls ${verb}`,
    `--${permission}-principal ${quoted(acl.principal)}`,
    acl.host === "*" ? "" : `--${permission}-host ${quoted(acl.host)}`,
    `--operation ${acl.operation.toLowerCase().replaceAll("_", "-")}`,
    resource,
    acl.pattern === "PREFIXED" ? "--resource-pattern-type prefixed" : "",
    verb === "remove" ? "--yes" : "",
  ]
    .filter(Boolean)
    .join(" ");
}
