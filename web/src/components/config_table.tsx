import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { patch, useData } from "../api";
import { Dialog, quoted } from "./dialog";
import { Filter, TextField } from "./field";
import { notify } from "./notices";
import { Badge, Shown } from "./states";
import { Table, byText } from "./table";
import { param, setParams } from "../router";
import { mayAdminister, mayChange } from "../session";

interface Config {
  name: string;
  value: string | null;
  source: string;
  read_only: boolean;
  sensitive: boolean;
}

interface ConfigTableProps {
  /** Path of the settings in the API. */
  place: string;
  /** The object in a command line: `topic NAME`. */
  command: string;
  /** The source of values that are set on this very object. */
  own: string;
}

/** The settings of a topic or broker, and a form that changes one. */
export function ConfigTable({ place, command, own }: ConfigTableProps): JSX.Element {
  const configs = useData<{ configs: Config[] }>(place, 5000);
  const [changing, setChanging] = useState<Config | null>(null);
  const text = param("q").toLowerCase();
  return (
    <>
      <div class="toolbar">
        <Filter label="Filter settings" value={param("q")} onInput={(value) => setParams({ q: value })} />
      </div>
      <Shown of={configs}>
        {(data) => (
          <Table
            label="Settings"
            rows={data.configs.filter((row) => row.name.includes(text))}
            id={(row) => row.name}
            sort="name"
            columns={[
              { key: "name", title: "Setting", cell: (row) => <code>{row.name}</code>, compare: byText((row) => row.name) },
              { key: "value", title: "Value", cell: (row) => (row.sensitive ? <Badge>secret</Badge> : <code>{row.value}</code>) },
              { key: "source", title: "Set by", cell: (row) => (row.source === own ? <Badge kind="ok">this {own}</Badge> : row.source), compare: byText((row) => row.source) },
              {
                key: "change",
                title: "Action",
                cell: (row) =>
                  (own === "broker" ? mayAdminister() : mayChange()) &&
                  !row.read_only && (
                    <button type="button" class="link" aria-label={`Change ${row.name}`} onClick={() => setChanging(row)}>
                      Change
                    </button>
                  ),
              },
            ]}
          />
        )}
      </Shown>
      {changing !== null && (
        <ChangeSetting
          place={place}
          command={command}
          own={own}
          config={changing}
          onClose={() => {
            setChanging(null);
            configs.reload();
          }}
        />
      )}
    </>
  );
}

function ChangeSetting({ place, command, own, config, onClose }: ConfigTableProps & { config: Config; onClose: () => void }): JSX.Element {
  const [value, setValue] = useState(config.value ?? "");
  const [reset, setReset] = useState(false);
  const change = async () => {
    const body = reset ? { delete: [config.name] } : { set: { [config.name]: value } };
    await patch(place, body);
    notify(`${config.name} was changed.`);
  };
  const line = `headrace configs set ${command} ${reset ? `--unset ${config.name}` : `--set ${quoted(`${config.name}=${value}`)}`}`;
  return (
    <Dialog title={`Change ${config.name}`} action="Change" command={line} onSubmit={change} onClose={onClose}>
      {!reset && <TextField label="Value" value={value} onInput={setValue} />}
      {config.source === own && (
        <label>
          <input type="checkbox" checked={reset} onChange={(event) => setReset(event.currentTarget.checked)} /> Back to the default
        </label>
      )}
    </Dialog>
  );
}
