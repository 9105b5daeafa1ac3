// The statements of a text, and what each one is. The console's server decides again what a user may run.

export type StatementKind = "session" | "read" | "query" | "change";

export interface Statement {
  /** Without a semicolon. */
  text: string;
  /** Where it begins in the text. */
  from: number;
  kind: StatementKind;
}

/** What is wrong, and at which place of the text. */
export class TextProblem extends Error {
  constructor(
    message: string,
    readonly at: number,
  ) {
    super(message);
  }
}

const TOKEN = /(?<skip>\s+|--[^\r\n]*|\/\*[^]*?\*\/)|(?<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\$\$[^]*?\$\$)|(?<unfinished>['"`]|\/\*|\$\$)|(?<word>[\w@]+)|[^]/gu;
const UNFINISHED: Record<string, string> = { "'": "The text has no closing quote (').", '"': 'The name has no closing quote (").', "`": "The name has no closing backtick (`).", "/*": "The comment has no end (*/).", $$: "The body has no end ($$)." };
const KINDS: Record<string, StatementKind> = {
  SET: "session",
  UNSET: "session",
  DEFINE: "session",
  UNDEFINE: "session",
  LIST: "read",
  SHOW: "read",
  DESCRIBE: "read",
  EXPLAIN: "read",
  SELECT: "query",
  WITH: "query",
  PRINT: "query",
};

/** The statements of a text. Semicolons in quotes, comments and bodies separate nothing. */
export function statementsOf(text: string): Statement[] {
  const found: Statement[] = [];
  let from = -1;
  let to = 0;
  let head = "";
  const end = () => {
    if (from >= 0) found.push({ text: text.slice(from, to), from, kind: KINDS[head.toUpperCase()] ?? "change" });
    from = -1;
    head = "";
  };
  for (const match of text.matchAll(TOKEN)) {
    const { skip, unfinished, word } = match.groups as Record<string, string | undefined>;
    if (skip !== undefined) continue;
    if (unfinished !== undefined) throw new TextProblem(UNFINISHED[unfinished]!, match.index);
    if (match[0] === ";") {
      end();
      continue;
    }
    if (from < 0) from = match.index;
    if (head === "" && match[0] !== "(") head = word ?? "?";
    to = match.index + match[0].length;
  }
  end();
  return found;
}

const PLACE = /^line (\d+), column (\d+): |^line (\d+):(\d+): /;

/** The place that a message of the server names, in a statement that begins at `from`; and the message without it. */
export function placeOf(message: string, statement: string, from: number): { at: number | null; message: string } {
  const match = PLACE.exec(message);
  if (match === null) return { at: null, message };
  const line = Number(match[1] ?? match[3]);
  const column = Number(match[2] ?? match[4]);
  const lines = statement.split("\n");
  const before = lines.slice(0, line - 1).reduce((total, each) => total + each.length + 1, 0);
  const at = Math.min(before + column - 1, statement.length);
  return { at: from + at, message: message.slice(match[0].length) };
}

/** Line and column of a place, from 1. */
export function lineAndColumn(text: string, at: number): [number, number] {
  const before = text.slice(0, at).split("\n");
  return [before.length, (before[before.length - 1] ?? "").length + 1];
}

/** A name in a statement: with backticks if it needs them. */
export function quotedName(name: string): string {
  return /^[A-Za-z_]\w*$/.test(name) ? name : `\`${name.replaceAll("`", "``")}\``;
}
