import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post, type Long } from "../api";
import { Dialog } from "./dialog";
import { Editor } from "./editor";
import { Field, TextField } from "./field";
import { notify } from "./notices";
import { bytes, count } from "../numbers";
import { produced, type RecordRow, type Shown } from "../records";
import { setParams } from "../router";
import { session } from "../session";

type Format = "none" | "text" | "json" | "hex" | "schema" | "same";

interface Part {
  format: Format;
  text: string;
  subject: string;
}

/** Writes a record, possibly one like `from`. What is not edited is copied on the server, byte by byte. */
export function Produce({ topic, from, onClose }: { topic: string; from?: RecordRow; onClose: () => void }): JSX.Element {
  const [key, setKey] = useState<Part>({ format: from === undefined ? "none" : "same", text: "", subject: `${topic}-key` });
  const [value, setValue] = useState<Part>({ format: from === undefined ? "json" : "same", text: "", subject: `${topic}-value` });
  const [partition, setPartition] = useState("");
  const [sameHeaders, setSameHeaders] = useState(from !== undefined);
  const [headers, setHeaders] = useState(headerLines(from) ?? "");
  const submit = async () => {
    const body: Record<string, unknown> = { key: sent(key), value: sent(value), partition: partition === "" ? null : partition };
    if (from !== undefined) body.like = { partition: from.partition, offset: from.offset };
    if (!sameHeaders) body.headers = parsedHeaders(headers);
    const place = await post<{ partition: number; offset: Long }>(`/topics/${encodeURIComponent(topic)}/records`, body);
    notify(`The record is in partition ${place.partition} at offset ${place.offset}.`);
    produced.value += 1;
    setParams({ open: `${place.partition}:${place.offset}` });
  };
  return (
    <Dialog title={from === undefined ? `Produce to ${topic}` : "Produce again"} action="Produce" onSubmit={submit} onClose={onClose}>
      <PartForm name="Key" value={key} onChange={setKey} original={original(from, "key")} />
      <PartForm name="Value" value={value} onChange={setValue} original={original(from, "value")} />
      {from !== undefined && (
        <label>
          <input type="checkbox" checked={sameHeaders} onChange={(event) => setSameHeaders(event.currentTarget.checked)} /> the same {count(from.header_count)} headers
        </label>
      )}
      {!sameHeaders && (
        <Field label="Headers" hint={from !== undefined && headerLines(from) === null ? "One a line: name: value. Those of the record cannot be edited as lines; these replace them." : "One a line: name: value"}>
          <textarea rows={2} value={headers} onInput={(event) => setHeaders(event.currentTarget.value)} />
        </Field>
      )}
      <TextField label="Partition" value={partition} onInput={setPartition} placeholder="by the key" />
    </Dialog>
  );
}

interface Original {
  shown: Shown | null;
  /** Why its text cannot be edited; empty if it can. */
  locked: string;
}

function original(from: RecordRow | undefined, name: "key" | "value"): Original | undefined {
  if (from === undefined) return undefined;
  const shown = from[name];
  const locked = from.masked.includes(name) ? "has masked fields" : shown?.cut === true ? "is too large" : "";
  return { shown, locked };
}

/** Headers as lines of text; null if lines cannot express them, or if they are not all here. */
function headerLines(from: RecordRow | undefined): string | null {
  if (from === undefined || from.header_count > from.headers.length || from.masked.includes("headers")) return null;
  const lines = from.headers.map((each) => (each.value === null || each.value.format === "hex" || each.value.cut || /[\r\n]/.test(each.value.text) ? null : `${each.name}: ${each.value.text}`));
  return lines.includes(null) ? null : lines.join("\n");
}

function parsedHeaders(lines: string): { name: string; value: string }[] {
  return lines
    .split("\n")
    .filter((line) => line.includes(":"))
    .map((line) => ({ name: line.slice(0, line.indexOf(":")).trim(), value: line.slice(line.indexOf(":") + 1).trim() }));
}

function sent(value: Part): object | null {
  if (value.format === "same") return { format: "same" };
  return value.format === "none" ? null : { format: value.format, text: value.text, subject: value.subject };
}

interface PartFormProps {
  name: string;
  value: Part;
  onChange: (value: Part) => void;
  original: Original | undefined;
}

function PartForm({ name, value, onChange, original }: PartFormProps): JSX.Element {
  const choose = (format: Format) => {
    // Another format begins with the text of the record, as far as the whole of it is here.
    const text = value.format === "same" && original?.locked === "" ? (original.shown?.text ?? "") : value.text;
    onChange({ ...value, format, text });
  };
  return (
    <fieldset class="part">
      <legend>{name}</legend>
      <Field label={`Format of the ${name.toLowerCase()}`}>
        <select value={value.format} onChange={(event) => choose(event.currentTarget.value as Format)}>
          {original !== undefined && <option value="same">as in the record{original.shown === null ? "" : ` (${bytes(original.shown.bytes)})`}</option>}
          <option value="none">null</option>
          <option value="text">text</option>
          <option value="json">JSON</option>
          <option value="hex">bytes as hexadecimal digits</option>
          {session.value.data?.has_registry && <option value="schema">JSON, encoded with a schema</option>}
        </select>
      </Field>
      {original !== undefined && original.locked !== "" && (
        <p class="muted">
          The {name.toLowerCase()} {original.locked}: it can be copied as it is, or replaced, but not edited.
        </p>
      )}
      {value.format === "schema" && <TextField label="Subject" value={value.subject} onInput={(subject) => onChange({ ...value, subject })} required />}
      {(value.format === "json" || value.format === "schema") && <Editor label={`Text of the ${name.toLowerCase()}`} value={value.text} onInput={(text) => onChange({ ...value, text })} />}
      {(value.format === "text" || value.format === "hex") && (
        <textarea aria-label={`Text of the ${name.toLowerCase()}`} rows={3} value={value.text} onInput={(event) => onChange({ ...value, text: event.currentTarget.value })} />
      )}
    </fieldset>
  );
}
