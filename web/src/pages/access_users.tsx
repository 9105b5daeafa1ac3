import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { put, remove, useData } from "../api";
import { Dialog, quoted } from "../components/dialog";
import { TextField } from "../components/field";
import { notify } from "../components/notices";
import { Shown } from "../components/states";
import { Table, byText } from "../components/table";
import { mayAdminister } from "../session";

interface User {
  name: string;
  mechanisms: string[];
}

export function Users(): JSX.Element {
  const users = useData<{ users: User[] }>("/users", 5000);
  const [form, setForm] = useState<{ kind: "password" | "delete"; name: string } | null>(null);
  const close = () => {
    setForm(null);
    users.reload();
  };
  return (
    <>
      {mayAdminister() && (
        <div class="toolbar">
          <button type="button" class="primary" onClick={() => setForm({ kind: "password", name: "" })}>
            Add user
          </button>
        </div>
      )}
      <Shown of={users}>
        {(data) => (
          <Table
            label="Users"
            rows={data.users}
            id={(row) => row.name}
            sort="name"
            empty="The cluster has no users with SCRAM passwords."
            columns={[
              { key: "name", title: "User", cell: (row) => row.name, compare: byText((row) => row.name) },
              { key: "mechanisms", title: "Mechanisms", cell: (row) => row.mechanisms.join(", ") },
              {
                key: "change",
                title: "Action",
                cell: (row) =>
                  mayAdminister() && (
                    <span class="toolbar">
                      <button type="button" class="link" aria-label={`Change the password of ${row.name}`} onClick={() => setForm({ kind: "password", name: row.name })}>
                        Password
                      </button>
                      <button type="button" class="link" aria-label={`Delete ${row.name}`} onClick={() => setForm({ kind: "delete", name: row.name })}>
                        Delete
                      </button>
                    </span>
                  ),
              },
            ]}
          />
        )}
      </Shown>
      {form?.kind === "password" && <Password name={form.name} onClose={close} />}
      {form?.kind === "delete" && (
        <Dialog
          title={`Delete user ${form.name}`}
          action="Delete"
          dangerous
          command={`headrace users delete ${quoted(form.name)} --yes`}
          onClose={close}
          onSubmit={async () => {
            await remove(`/users/${encodeURIComponent(form.name)}`);
            notify(`User ${form.name} was deleted.`);
          }}
        >
          <p>The user can no longer log in. Open connections end when they log in again. The ACLs of the user stay.</p>
        </Dialog>
      )}
    </>
  );
}

function Password({ name, onClose }: { name: string; onClose: () => void }): JSX.Element {
  const [user, setUser] = useState(name);
  const [password, setPassword] = useState("");
  return (
    <Dialog
      title={name === "" ? "Add user" : `Password of ${name}`}
      action={name === "" ? "Add" : "Change"}
      command={`headrace users add ${quoted(user || "NAME")}`}
      onClose={onClose}
      onSubmit={async () => {
        await put(`/users/${encodeURIComponent(user)}`, { password });
        notify(`The password of ${user} was set.`);
      }}
    >
      {name === "" && <TextField label="Name" value={user} onInput={setUser} required />}
      <TextField label="Password" value={password} onInput={setPassword} type="password" required />
    </Dialog>
  );
}
