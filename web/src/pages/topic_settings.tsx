import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { patch, useData } from "../api";
import { Dialog, quoted } from "../components/dialog";
import { Filter, TextField } from "../components/field";
import { notify } from "../components/notices";
import { Badge, Shown } from "../components/states";
import { Table, byText } from "../components/table";
import { param, setParams } from "../router";
import { mayChange } from "../session";

interface Config {
  name: string;
  value: string | null;
  source: string;
  read_only: boolean;
  sensitive: boolean;
}

export function TopicSettings({ name }: { name: string }): JSX.Element {
  const configs = useData<{ configs: Config[] }>(`/topics/${encodeURIComponent(name)}/configs`);
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
              { key: "source", title: "Set by", cell: (row) => (row.source === "topic" ? <Badge kind="ok">this topic</Badge> : row.source), compare: byText((row) => row.source) },
              {
                key: "change",
                title: "",
                cell: (row) =>
                  mayChange() &&
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
          topic={name}
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

function ChangeSetting({ topic, config, onClose }: { topic: string; config: Config; onClose: () => void }): JSX.Element {
  const [value, setValue] = useState(config.value ?? "");
  const [reset, setReset] = useState(false);
  const change = async () => {
    const body = reset ? { delete: [config.name] } : { set: { [config.name]: value } };
    await patch(`/topics/${encodeURIComponent(topic)}/configs`, body);
    notify(`${config.name} of ${topic} was changed.`);
  };
  const command = reset
    ? `headrace configs unset topic ${quoted(topic)} ${config.name}`
    : `headrace configs set topic ${quoted(topic)} ${quoted(`${config.name}=${value}`)}`;
  return (
    <Dialog title={`Change ${config.name}`} action="Change" command={command} onSubmit={change} onClose={onClose}>
      {!reset && <TextField label="Value" value={value} onInput={setValue} />}
      {config.source === "topic" && (
        <label>
          <input type="checkbox" checked={reset} onChange={(event) => setReset(event.currentTarget.checked)} /> Back to the default
        </label>
      )}
    </Dialog>
  );
}
