import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post, put, useData } from "../api";
import { Dialog } from "../components/dialog";
import { Field, TextField } from "../components/field";
import { notify } from "../components/notices";
import { Badge, Shown } from "../components/states";
import { navigate, path } from "../router";
import { shortClass } from "./connectors";

interface Plugin {
  class: string;
  type: string;
  version: string;
}

interface Definition {
  name: string;
  type: string;
  required: boolean;
  default: string | null;
  importance: string;
  documentation: string;
  group: string;
}

type Configs = Record<string, string>;
type Errors = Record<string, string[]>;

/** Chooses a plug-in, then its settings. */
export function NewConnector({ onClose }: { onClose: () => void }): JSX.Element {
  const plugins = useData<{ plugins: Plugin[] }>("/connector-plugins");
  const [plugin, setPlugin] = useState("");
  const [name, setName] = useState("");
  const [configs, setConfigs] = useState<Configs>({ "tasks.max": "1" });
  const sent = { ...configs, "connector.class": plugin };
  return (
    <Dialog
      title="New connector"
      action="Create"
      disabled={plugin === ""}
      onClose={onClose}
      onSubmit={async () => {
        await post("/connectors", { name, configs: sent });
        notify(`The connector ${name} was created.`);
        navigate(path("connectors", name));
      }}
    >
      <Shown of={plugins}>
        {(data) => (
          <>
            <TextField label="Name" value={name} onInput={setName} required placeholder="orders-to-files" />
            <Field label="Plug-in">
              <select value={plugin} required onChange={(event) => setPlugin(event.currentTarget.value)}>
                <option value="">Choose…</option>
                {data.plugins.map((each) => (
                  <option key={each.class} value={each.class}>
                    {shortClass(each.class)} ({[each.type, each.version].filter(Boolean).join(", ")})
                  </option>
                ))}
              </select>
            </Field>
            {plugin !== "" && <ConnectorSettings key={plugin} name={name} plugin={plugin} configs={configs} exists={false} onChange={setConfigs} />}
          </>
        )}
      </Shown>
    </Dialog>
  );
}

/** Changes the settings of a connector. Secrets are shown as [hidden], and stay if they are not changed. */
export function EditConnector({ name, plugin, configs, onClose }: { name: string; plugin: string; configs: Configs; onClose: () => void }): JSX.Element {
  const [changed, setChanged] = useState<Configs>(Object.fromEntries(Object.entries(configs).filter(([key]) => !FIXED.includes(key))));
  return (
    <Dialog
      title={`Settings of ${name}`}
      action="Change"
      onClose={onClose}
      onSubmit={async () => {
        await put(`/connectors/${encodeURIComponent(name)}/configs`, { configs: { ...changed, "connector.class": plugin } });
        notify(`The settings of ${name} were changed; its tasks are restarted.`);
      }}
    >
      <ConnectorSettings name={name} plugin={plugin} configs={changed} exists onChange={setChanged} />
    </Dialog>
  );
}

/** Settings that the form sets by itself. */
const FIXED = ["name", "connector.class"];

interface SettingsProps {
  name: string;
  plugin: string;
  configs: Configs;
  exists: boolean;
  onChange: (configs: Configs) => void;
}

/** A field for each important setting of the plug-in, lines for all others, and what Connect says about them. */
function ConnectorSettings({ name, plugin, configs, exists, onChange }: SettingsProps): JSX.Element {
  const place = `/connector-plugins/${encodeURIComponent(plugin)}`;
  const found = useData<{ definitions: Definition[] }>(place);
  const [errors, setErrors] = useState<Errors | null>(null);
  const [problem, setProblem] = useState("");
  const change = (next: Configs) => {
    setErrors(null);
    onChange(next);
  };
  const check = async () => {
    setProblem("");
    try {
      const body = { name, configs: { ...configs, "connector.class": plugin }, exists };
      setErrors((await post<{ errors: Errors }>(`${place}/check`, body)).errors);
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <Shown of={found}>
      {(data) => {
        const known = data.definitions.filter((each) => !FIXED.includes(each.name));
        const shown = known.filter((each) => each.required || each.importance === "HIGH");
        const names = new Set(shown.map((each) => each.name));
        const others = Object.entries(errors ?? {}).filter(([key]) => !names.has(key));
        return (
          <>
            {shown.map((each) => (
              <Setting key={each.name} of={each} value={configs[each.name] ?? ""} errors={errors?.[each.name] ?? []} onInput={(value) => change(without(configs, each.name, value))} />
            ))}
            <OtherSettings shown={names} configs={configs} onChange={change} />
            <details>
              <summary>All {known.length} settings of this plug-in</summary>
              <dl class="definitions">
                {known.map((each) => (
                  <>
                    <dt>
                      <code>{each.name}</code> {each.default !== null && each.default !== "" && <small>default {each.default}</small>}
                    </dt>
                    <dd>{plain(each.documentation)}</dd>
                  </>
                ))}
              </dl>
            </details>
            <p>
              <button type="button" disabled={name === ""} onClick={() => void check()}>
                Check settings
              </button>
            </p>
            {problem !== "" && (
              <p class="error" role="alert">
                {problem}
              </p>
            )}
            {errors !== null && (
              <div role="status">
                {Object.keys(errors).length === 0 ? <Badge kind="ok">the settings are valid</Badge> : <Badge kind="bad">the settings are not valid</Badge>}
                <ul>
                  {others.flatMap(([key, texts]) =>
                    texts.map((text) => (
                      <li key={key + text}>
                        <code>{key}</code>: {text}
                      </li>
                    )),
                  )}
                </ul>
              </div>
            )}
          </>
        );
      }}
    </Shown>
  );
}

function Setting({ of, value, errors, onInput }: { of: Definition; value: string; errors: string[]; onInput: (value: string) => void }): JSX.Element {
  const hint = plain(of.documentation);
  return (
    <>
      {of.type === "BOOLEAN" ? (
        <Field label={of.name} hint={hint}>
          <select value={value} onChange={(event) => onInput(event.currentTarget.value)}>
            <option value="">default ({of.default ?? "none"})</option>
            <option>true</option>
            <option>false</option>
          </select>
        </Field>
      ) : (
        <TextField
          label={of.name}
          value={value}
          onInput={onInput}
          hint={hint}
          placeholder={of.default ?? ""}
          required={of.required}
          type={of.type === "PASSWORD" ? "password" : "text"}
        />
      )}
      {errors.map((text) => (
        <p key={text} class="error" role="alert">
          {text}
        </p>
      ))}
    </>
  );
}

/** Settings without a field, as lines of a properties file. */
function OtherSettings({ shown, configs, onChange }: { shown: Set<string>; configs: Configs; onChange: (configs: Configs) => void }): JSX.Element {
  const own = Object.entries(configs).filter(([name]) => shown.has(name));
  const rest = Object.entries(configs).filter(([name]) => !shown.has(name));
  const [text, setText] = useState(rest.map(([name, value]) => `${name}=${value}`).join("\n"));
  const input = (lines: string) => {
    setText(lines);
    const parsed = lines
      .split("\n")
      .map((line) => line.trim())
      .filter((line) => line !== "" && !line.startsWith("#") && line.includes("="))
      .map((line): [string, string] => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()]);
    onChange(Object.fromEntries([...own, ...parsed]));
  };
  return (
    <Field label="Other settings" hint="One in a line, as name=value.">
      <textarea rows={4} spellcheck={false} value={text} onInput={(event) => input(event.currentTarget.value)} />
    </Field>
  );
}

/** Documentation of Java has HTML in it; pages show text only. */
function plain(text: string): string {
  return text.replace(/<\/?[a-z][^>]*>/gi, "");
}

/** An empty field leaves the setting to its default. */
function without(configs: Configs, name: string, value: string): Configs {
  const { [name]: _, ...rest } = configs;
  return value === "" ? rest : { ...rest, [name]: value };
}
