// Formats JSON without parsing it: numbers keep every digit, and duplicate names stay.

export interface Token {
  kind: "space" | "mark" | "name" | "string" | "number" | "word";
  text: string;
}

const PATTERN = /"(?:[^"\\]|\\.)*"?|-?\d[\d.eE+-]*|[{}[\],:]|[A-Za-z]+|\s+|./gs;

/** The tokens of a JSON text with line breaks and indentation. A text that is cut in the middle is formatted up to there. */
export function formatJson(text: string, indentation = "  "): Token[] {
  const tokens: Token[] = [];
  const raw = text.match(PATTERN) ?? [];
  let depth = 0;
  const space = (value: string) => tokens.push({ kind: "space", text: value });
  const line = () => space(`\n${indentation.repeat(Math.max(0, Math.min(depth, 100)))}`);
  const next = (index: number): string => {
    let at = index + 1;
    while (at < raw.length && /^\s+$/.test(raw[at]!)) at += 1;
    return raw[at] ?? "";
  };
  raw.forEach((token, index) => {
    if (/^\s+$/.test(token)) return;
    if (token === "{" || token === "[") {
      tokens.push({ kind: "mark", text: token });
      depth += 1;
      const closes = token === "{" ? "}" : "]";
      if (next(index) !== closes) line();
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const last = tokens[tokens.length - 1];
      const opens = token === "}" ? "{" : "[";
      if (last?.text !== opens) line();
      tokens.push({ kind: "mark", text: token });
    } else if (token === ",") {
      tokens.push({ kind: "mark", text: token });
      line();
    } else if (token === ":") {
      tokens.push({ kind: "mark", text: token });
      space(" ");
    } else if (token.startsWith('"')) {
      tokens.push({ kind: next(index) === ":" ? "name" : "string", text: token });
    } else if (/^[-\d]/.test(token)) {
      tokens.push({ kind: "number", text: token });
    } else {
      tokens.push({ kind: "word", text: token });
    }
  });
  return tokens;
}
