import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post, type Long } from "../api";
import { Dialog } from "./dialog";
import { Editor } from "./editor";
import { Field, TextField } from "./field";
import { notify } from "./notices";
import { produced, type RecordRow, type Shown } from "../records";
import { setParams } from "../router";
import { session } from "../session";

type Format = "none" | "text" | "json" | "hex" | "schema";

interface Part {
  format: Format;
  text: string;
  subject: string;
}

/** Writes a record, possibly one like `from`. */
export function Produce({ topic, from, onClose }: { topic: string; from?: RecordRow; onClose: () => void }): JSX.Element {
  const [key, setKey] = useState<Part>(part(from === undefined ? undefined : from.key, topic, "key", "none"));
  const [value, setValue] = useState<Part>(part(from === undefined ? undefined : from.value, topic, "value", "json"));
  const [partition, setPartition] = useState("");
  const given = (from?.headers ?? []).map((each) => `${each.name}: ${each.value?.text ?? ""}`).join("\n");
  const [headers, setHeaders] = useState(given);
  const cut = from !== undefined && (from.key?.cut === true || from.value?.cut === true);
  const submit = async () => {
    const body = {
      key: sent(key),
      value: sent(value),
      partition: partition === "" ? null : partition,
      // Lines of text cannot express null and bytes; headers that were not edited are sent as they are.
      headers: headers === given ? (from?.headers ?? []) : parsedHeaders(headers),
    };
    const place = await post<{ partition: number; offset: Long }>(`/topics/${encodeURIComponent(topic)}/records`, body);
    notify(`The record is in partition ${place.partition} at offset ${place.offset}.`);
    produced.value += 1;
    setParams({ open: `${place.partition}:${place.offset}` });
  };
  return (
    <Dialog title={from === undefined ? `Produce to ${topic}` : "Produce again"} action="Produce" onSubmit={submit} onClose={onClose}>
      {cut && <p class="error">The record is too large to edit here; what is shown below is only its beginning.</p>}
      <PartForm name="Key" value={key} onChange={setKey} />
      <PartForm name="Value" value={value} onChange={setValue} />
      <Field label="Headers" hint="One a line: name: value">
        <textarea rows={2} value={headers} onInput={(event) => setHeaders(event.currentTarget.value)} />
      </Field>
      <TextField label="Partition" value={partition} onInput={setPartition} placeholder="by the key" />
    </Dialog>
  );
}

function parsedHeaders(lines: string): { name: string; value: string }[] {
  return lines
    .split("\n")
    .filter((line) => line.includes(":"))
    .map((line) => ({ name: line.slice(0, line.indexOf(":")).trim(), value: line.slice(line.indexOf(":") + 1).trim() }));
}

function part(shown: Shown | null | undefined, topic: string, name: string, standard: Format): Part {
  const subject = `${topic}-${name}`;
  if (shown === undefined) return { format: standard, text: "", subject };
  if (shown === null) return { format: "none", text: "", subject };
  return { format: shown.format, text: shown.text, subject };
}

function sent(value: Part): object | null {
  return value.format === "none" ? null : { format: value.format, text: value.text, subject: value.subject };
}

function PartForm({ name, value, onChange }: { name: string; value: Part; onChange: (value: Part) => void }): JSX.Element {
  return (
    <fieldset class="part">
      <legend>{name}</legend>
      <Field label={`Format of the ${name.toLowerCase()}`}>
        <select value={value.format} onChange={(event) => onChange({ ...value, format: event.currentTarget.value as Format })}>
          <option value="none">null</option>
          <option value="text">text</option>
          <option value="json">JSON</option>
          <option value="hex">bytes as hexadecimal digits</option>
          {session.value.data?.has_registry && <option value="schema">JSON, encoded with a schema</option>}
        </select>
      </Field>
      {value.format === "schema" && <TextField label="Subject" value={value.subject} onInput={(subject) => onChange({ ...value, subject })} required />}
      {(value.format === "json" || value.format === "schema") && <Editor label={`Text of the ${name.toLowerCase()}`} value={value.text} onInput={(text) => onChange({ ...value, text })} />}
      {(value.format === "text" || value.format === "hex") && (
        <textarea aria-label={`Text of the ${name.toLowerCase()}`} rows={3} value={value.text} onInput={(event) => onChange({ ...value, text: event.currentTarget.value })} />
      )}
    </fieldset>
  );
}
