import type { JSX } from "preact";
import { formatJson } from "../json_text";
import { bytes } from "../numbers";
import type { Shown } from "../records";
import { Badge } from "./states";

/** One line of a key or value. Right-to-left text does not change the order of what is around it. */
export function ShownLine({ of }: { of: Shown | null }): JSX.Element {
  if (of === null) return <span class="null">null</span>;
  const text = of.text.slice(0, 300);
  return (
    <span class={`shown-line ${of.format === "hex" ? "hex" : ""}`}>
      {of.problem !== undefined && <Badge kind="warning">not decoded</Badge>}
      <bdi>{of.format === "hex" ? `0x${text}` : text}</bdi>
      {(of.cut || of.text.length > 300) && "…"}
    </span>
  );
}

/** A key or value in full: how it was decoded, and its text with line breaks. */
export function ShownBlock({ of, download }: { of: Shown | null; download?: string }): JSX.Element {
  if (of === null) return <p class="null">null</p>;
  return (
    <div class="shown-block">
      <p class="muted">
        {formatName(of)}, {bytes(of.bytes)}
        {download !== undefined && (
          <>
            {" "}
            · <a href={download}>Download</a>
          </>
        )}
      </p>
      {of.problem !== undefined && <p class="error">Not decoded with schema {of.schema_id}: {of.problem}</p>}
      <pre class="shown-text" tabIndex={0}>
        {of.format === "json" || of.format === "schema" ? <JsonText text={of.text} /> : of.format === "hex" ? hexLines(of.text) : of.text}
      </pre>
      {of.cut && <p class="muted">Too large to show in full. The whole of it is still in the topic{download === undefined ? "" : "; download it"}.</p>}
    </div>
  );
}

export function formatName(of: Shown): string {
  if (of.format === "schema") return `decoded with schema ${of.schema_id}`;
  return { json: "JSON", text: "text", hex: "bytes" }[of.format];
}

const MOST_TOKENS = 20_000;

export function JsonText({ text }: { text: string }): JSX.Element {
  const tokens = formatJson(text);
  // Colours of very long values would cost more than they help.
  if (tokens.length > MOST_TOKENS) return <>{tokens.map((token) => token.text).join("")}</>;
  return (
    <>
      {tokens.map((token, index) => (token.kind === "space" || token.kind === "mark" ? token.text : <span key={index} class={`json-${token.kind}`}>{token.text}</span>))}
    </>
  );
}

/** Sixteen bytes a line, with their offset and their ASCII characters. */
function hexLines(hex: string): string {
  const lines: string[] = [];
  for (let at = 0; at < hex.length; at += 32) {
    const pairs = hex.slice(at, at + 32).match(/../g) ?? [];
    const ascii = pairs.map((pair) => {
      const code = parseInt(pair, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : ".";
    });
    lines.push(`${(at / 2).toString(16).padStart(8, "0")}  ${pairs.join(" ").padEnd(47)}  ${ascii.join("")}`);
  }
  return lines.join("\n");
}
