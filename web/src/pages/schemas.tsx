import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post, put, remove, useData } from "../api";
import { Dialog, quoted } from "../components/dialog";
import { Difference, Editor } from "../components/editor";
import { Field, Filter, TextField } from "../components/field";
import { notify } from "../components/notices";
import { JsonText } from "../components/shown_value";
import { Badge, Shown } from "../components/states";
import { Table, byText } from "../components/table";
import { formatJson } from "../json_text";
import { count } from "../numbers";
import { Link, navigate, param, path, setParams } from "../router";
import { mayChange } from "../session";

interface Subjects {
  subjects: string[];
  types: string[];
  compatibility: string | null;
  mode: string | null;
}

interface Reference {
  name: string;
  subject: string;
  version: number;
}

interface Version {
  version: number;
  id: number;
  schema: string;
  schemaType?: string;
  references?: Reference[];
}

interface SubjectInfo {
  subject: string;
  compatibility: string | null;
  versions: Version[];
}

const LEVELS = ["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"];

/** `/schemas` and `/schemas/SUBJECT`. */
export default function Schemas({ parts }: { parts: string[] }): JSX.Element {
  return parts[0] === undefined ? <SubjectList /> : <SubjectPage key={parts[0]} subject={parts[0]} />;
}

function SubjectList(): JSX.Element {
  const subjects = useData<Subjects>("/schemas", 15_000);
  const [registering, setRegistering] = useState(false);
  const text = param("q").toLowerCase();
  const rows = (subjects.data?.subjects ?? []).filter((name) => name.toLowerCase().includes(text));
  return (
    <div class="page">
      <div class="page-head">
        <h1>Schemas</h1>
        {mayChange() && subjects.data !== undefined && (
          <button type="button" class="primary" onClick={() => setRegistering(true)}>
            Register schema
          </button>
        )}
      </div>
      <Shown of={subjects}>
        {(data) => (
          <>
            <div class="toolbar">
              <Filter label="Filter by subject" value={param("q")} onInput={(value) => setParams({ q: value })} />
              <span class="muted">
                {count(rows.length)} of {count(data.subjects.length)} subjects; compatibility {data.compatibility ?? "unknown"}, mode {data.mode ?? "unknown"}
              </span>
            </div>
            <Table
              label="Subjects"
              rows={rows}
              id={(name) => name}
              sort="name"
              empty={text === "" ? "The registry has no subjects." : "No subject has this name."}
              columns={[{ key: "name", title: "Subject", cell: (name) => <Link to={path("schemas", name)}>{name}</Link>, compare: byText((name) => name) }]}
            />
          </>
        )}
      </Shown>
      {registering && <Register types={subjects.data?.types ?? ["AVRO"]} subject="" text="" type="AVRO" onClose={() => setRegistering(false)} />}
    </div>
  );
}

function SubjectPage({ subject }: { subject: string }): JSX.Element {
  const info = useData<SubjectInfo>(`/schemas/${encodeURIComponent(subject)}`);
  const types = useData<Subjects>("/schemas");
  const [form, setForm] = useState<"" | "register" | "compatibility" | "delete">("");
  const close = () => {
    setForm("");
    info.reload();
  };
  return (
    <div class="page">
      <div class="page-head">
        <h1>{subject}</h1>
        {mayChange() && info.data !== undefined && (
          <>
            <button type="button" onClick={() => setForm("compatibility")}>
              Compatibility
            </button>
            <button type="button" class="primary" onClick={() => setForm("register")}>
              New version
            </button>
            <button type="button" class="danger" onClick={() => setForm("delete")}>
              Delete version
            </button>
          </>
        )}
      </div>
      <Shown of={info}>{(data) => <Versions data={data} />}</Shown>
      {form === "register" && info.data !== undefined && (
        <Register subject={subject} types={types.data?.types ?? ["AVRO"]} type={info.data.versions[0]?.schemaType ?? "AVRO"} text={info.data.versions[0]?.schema ?? ""} references={info.data.versions[0]?.references ?? []} onClose={close} />
      )}
      {form === "compatibility" && info.data !== undefined && <Compatibility subject={subject} level={info.data.compatibility ?? "BACKWARD"} onClose={close} />}
      {form === "delete" && info.data !== undefined && <DeleteVersion data={info.data} onClose={close} />}
    </div>
  );
}

function Versions({ data }: { data: SubjectInfo }): JSX.Element {
  const wanted = Number(param("version"));
  const current = data.versions.find((each) => each.version === wanted) ?? data.versions[0];
  const other = data.versions.find((each) => each.version === Number(param("with")));
  if (current === undefined) return <p class="empty">The subject has no versions.</p>;
  return (
    <>
      <div class="toolbar">
        <Field label="Version">
          <select value={String(current.version)} onChange={(event) => setParams({ version: event.currentTarget.value })}>
            {data.versions.map((each) => (
              <option key={each.version} value={String(each.version)}>
                {each.version} (id {each.id})
              </option>
            ))}
          </select>
        </Field>
        <Field label="Compare with">
          <select value={other === undefined ? "" : String(other.version)} onChange={(event) => setParams({ with: event.currentTarget.value })}>
            <option value="">nothing</option>
            {data.versions
              .filter((each) => each.version !== current.version)
              .map((each) => (
                <option key={each.version} value={String(each.version)}>
                  version {each.version}
                </option>
              ))}
          </select>
        </Field>
        <Badge>{current.schemaType ?? "AVRO"}</Badge>
        <Badge>compatibility {data.compatibility ?? "unknown"}</Badge>
      </div>
      {current.references !== undefined && current.references.length > 0 && (
        <p>
          Refers to{" "}
          {current.references.map((each, index) => (
            <span key={each.name}>
              {index > 0 && ", "}
              <Link to={`${path("schemas", each.subject)}?version=${each.version}`}>{each.name}</Link>
            </span>
          ))}
        </p>
      )}
      {other === undefined ? (
        <pre class="shown-text schema-text" tabIndex={0}>
          {current.schemaType === "PROTOBUF" ? current.schema : <JsonText text={current.schema} />}
        </pre>
      ) : (
        <Difference before={pretty(older(current, other))} after={pretty(newer(current, other))} />
      )}
    </>
  );
}

function older(a: Version, b: Version): Version {
  return a.version < b.version ? a : b;
}

function newer(a: Version, b: Version): Version {
  return a.version < b.version ? b : a;
}

function pretty(version: Version): string {
  if (version.schemaType === "PROTOBUF") return version.schema;
  return formatJson(version.schema).map((token) => token.text).join("");
}

interface RegisterProps {
  subject: string;
  types: string[];
  type: string;
  text: string;
  /** Those of the version before; a new one usually needs them too. */
  references?: Reference[];
  onClose: () => void;
}

/** A new version of a subject. Its compatibility is checked before it is registered. */
function Register({ subject, types, type, text, references = [], onClose }: RegisterProps): JSX.Element {
  const [name, setName] = useState(subject);
  const [kind, setKind] = useState(type);
  const [schema, setSchema] = useState(type === "PROTOBUF" ? text : formatJson(text).map((token) => token.text).join(""));
  const [result, setChecked] = useState<{ is_compatible: boolean; messages?: string[]; of: string } | null>(null);
  const body = { schema, type: kind, references };
  const asked = JSON.stringify([name, body]);
  // An answer that comes after an edit is about another text.
  const checked = result?.of === asked ? result : null;
  const check = async () => {
    try {
      setChecked({ ...(await post<{ is_compatible: boolean; messages?: string[] }>(`/schemas/${encodeURIComponent(name)}/check`, body)), of: asked });
    } catch (error) {
      setChecked({ is_compatible: false, messages: [error instanceof Error ? error.message : String(error)], of: asked });
    }
  };
  return (
    <Dialog
      title={subject === "" ? "Register schema" : `New version of ${subject}`}
      action="Register"
      command={`headrace schemas register ${quoted(name || "SUBJECT")} FILE`}
      onClose={onClose}
      onSubmit={async () => {
        const { id } = await post<{ id: number }>(`/schemas/${encodeURIComponent(name)}`, body);
        notify(`The schema has the id ${id}.`);
        navigate(path("schemas", name));
      }}
    >
      {subject === "" && <TextField label="Subject" value={name} onInput={setName} required placeholder="orders-value" />}
      <Field label="Type">
        <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
          {types.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </Field>
      {references.length > 0 && <p class="muted">It refers to {references.map((each) => `${each.name} (${each.subject}, version ${each.version})`).join(", ")}, as the version before.</p>}
      <p class="field-label">Schema</p>
      <Editor label="Schema" value={schema} onInput={setSchema} />
      <p>
        <button type="button" disabled={name === ""} onClick={() => void check()}>
          Check compatibility
        </button>
      </p>
      {checked !== null && (
        <div role="status">
          {checked.is_compatible ? <Badge kind="ok">compatible</Badge> : <Badge kind="bad">not compatible</Badge>}
          <ul>
            {(checked.messages ?? []).map((message) => (
              <li key={message}>{message}</li>
            ))}
          </ul>
        </div>
      )}
    </Dialog>
  );
}

function Compatibility({ subject, level, onClose }: { subject: string; level: string; onClose: () => void }): JSX.Element {
  const [value, setValue] = useState(level);
  return (
    <Dialog
      title={`Compatibility of ${subject}`}
      action="Change"
      command={`headrace schemas config ${quoted(subject)} --compatibility ${value}`}
      onClose={onClose}
      onSubmit={async () => {
        await put(`/schemas/${encodeURIComponent(subject)}/compatibility`, { compatibility: value });
        notify(`The compatibility level of ${subject} is ${value}.`);
      }}
    >
      <Field label="Level">
        <select value={value} onChange={(event) => setValue(event.currentTarget.value)}>
          {LEVELS.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </Field>
    </Dialog>
  );
}

function DeleteVersion({ data, onClose }: { data: SubjectInfo; onClose: () => void }): JSX.Element {
  const [version, setVersion] = useState(String(data.versions[0]?.version ?? ""));
  return (
    <Dialog
      title={`Delete a version of ${data.subject}`}
      action="Delete"
      dangerous
      command={`headrace schemas delete ${quoted(data.subject)} --version ${version} --yes`}
      onClose={onClose}
      onSubmit={async () => {
        await remove(`/schemas/${encodeURIComponent(data.subject)}/${version}`);
        notify(`Version ${version} of ${data.subject} was deleted.`);
        if (data.versions.length === 1) navigate("/schemas");
      }}
    >
      <p>The version is no longer listed. Values that were written with it can still be read by its id.</p>
      <Field label="Version">
        <select value={version} onChange={(event) => setVersion(event.currentTarget.value)}>
          {data.versions.map((each) => (
            <option key={each.version}>{each.version}</option>
          ))}
        </select>
      </Field>
    </Dialog>
  );
}
