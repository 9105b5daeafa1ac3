// The editor for SQL, in a part of its own that is loaded when it is needed.

import { SQLDialect } from "@codemirror/lang-sql";
import { EditorState, Prec, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView, keymap } from "@codemirror/view";
import { basicSetup } from "codemirror";
import { quotedName } from "../sql_text";
import { KEYWORDS, PROPERTIES, PSEUDO_COLUMNS, TYPES } from "../sql_words";
import { colours, look, shadow } from "./codemirror_look";

/** Names that can be completed. */
export interface SqlNames {
  functions: string[];
  sources: { name: string; kind: string; columns: { name: string; type: string }[] }[];
}

export interface SqlEditor {
  view: EditorView;
  /** Marks the place of an error; null removes the mark. */
  mark: (at: number | null) => void;
  /** Puts the cursor at a place. */
  goTo: (at: number) => void;
  /** The selected text and its place; null if nothing is selected. */
  selected: () => { text: string; from: number } | null;
}

const DIALECT = SQLDialect.define({
  keywords: [...new Set(KEYWORDS.join(" ").toLowerCase().split(" "))].join(" "),
  types: TYPES.join(" ").toLowerCase(),
  identifierQuotes: '`"',
  doubleDollarQuotedStrings: true,
});

const size = EditorView.theme({
  ".cm-scroller": { maxHeight: "45vh", overflow: "auto" },
  ".cm-content": { minHeight: "8.5rem" },
  ".cm-mistake": { textDecoration: "underline wavy var(--bad)", textUnderlineOffset: "3px", backgroundColor: "var(--bad-surface)" },
});

const setMark = StateEffect.define<{ from: number; to: number } | null>();
const marks = StateField.define({
  create: () => Decoration.none,
  update(old, transaction) {
    let found = transaction.docChanged ? Decoration.none : old;
    for (const effect of transaction.effects) {
      if (effect.is(setMark)) found = effect.value === null ? Decoration.none : Decoration.set([Decoration.mark({ class: "cm-mistake" }).range(effect.value.from, effect.value.to)]);
    }
    return found;
  },
  provide: (field) => EditorView.decorations.from(field),
});

export function sqlEditor(parent: HTMLElement, label: string, text: string, names: () => SqlNames, onInput: (text: string) => void, onRun: () => void): SqlEditor {
  const changed = EditorView.updateListener.of((update) => {
    if (update.docChanged) onInput(update.state.doc.toString());
  });
  const run = keymap.of([{ key: "Mod-Enter", run: () => (onRun(), true) }]);
  // One object: the library takes another one for a change of the completions, and asks again without end.
  const data = [{ autocomplete: (context: Context) => complete(context, names()) }];
  const completion = EditorState.languageData.of(() => data);
  const state = EditorState.create({
    doc: text,
    extensions: [Prec.highest(run), basicSetup, DIALECT.extension, completion, marks, look, size, colours, changed, EditorView.contentAttributes.of({ "aria-label": label }), EditorView.lineWrapping],
  });
  const root = shadow(parent);
  const view = new EditorView({ state, parent: root, root });
  return {
    view,
    mark: (at) => {
      const word = at === null ? null : (view.state.wordAt(at) ?? { from: Math.max(0, Math.min(at, view.state.doc.length - 1)), to: Math.min(at + 1, view.state.doc.length) });
      view.dispatch({ effects: setMark.of(word === null || word.from >= word.to ? null : { from: word.from, to: word.to }) });
    },
    goTo: (at) => {
      view.dispatch({ selection: { anchor: Math.min(at, view.state.doc.length) }, scrollIntoView: true });
      view.focus();
    },
    selected: () => {
      const { from, to } = view.state.selection.main;
      return from === to ? null : { text: view.state.sliceDoc(from, to), from };
    },
  };
}

/** What the library passes to sources of completions, as far as it is used here. */
interface Context {
  state: EditorState;
  pos: number;
  explicit: boolean;
  matchBefore: (pattern: RegExp) => { from: number; to: number; text: string } | null;
}

interface Option {
  label: string;
  type: string;
  detail?: string;
  apply?: string;
  boost?: number;
}

function complete(context: Context, names: SqlNames): { from: number; options: Option[]; validFor?: RegExp } | null {
  const text = context.state.doc.toString();
  const used = names.sources.filter((each) => new RegExp(`(^|[^\\w])${escaped(each.name)}([^\\w]|$)`, "i").test(text));
  const dotted = context.matchBefore(/[\w`]+\.\w*$/);
  if (dotted !== null) {
    const [before = "", after = ""] = dotted.text.split(".");
    const source = sourceNamed(before.replaceAll("`", ""), names, text);
    if (source === undefined) return null;
    return { from: dotted.to - after.length, options: source.columns.map((each) => ({ label: each.name, type: "property", detail: each.type, apply: quotedName(each.name) })), validFor: /^\w*$/ };
  }
  const word = context.matchBefore(/[\w@]+$/);
  if (word === null && !context.explicit) return null;
  const lower = word !== null && word.text === word.text.toLowerCase() && /[a-z]/.test(word.text);
  const inCase = (label: string) => (lower ? label.toLowerCase() : label);
  const options: Option[] = names.sources.map((each) => ({ label: each.name, type: "class", detail: each.kind, apply: quotedName(each.name), boost: 20 }));
  const columns = new Map<string, Option>();
  for (const source of used.length > 0 ? used : names.sources) {
    for (const each of source.columns) if (!columns.has(each.name)) columns.set(each.name, { label: each.name, type: "property", detail: each.type, apply: quotedName(each.name), boost: used.length > 0 ? 30 : 0 });
  }
  options.push(...columns.values());
  options.push(...KEYWORDS.map((each) => ({ label: inCase(each), type: "keyword" })));
  options.push(...TYPES.map((each) => ({ label: inCase(each), type: "type" })));
  options.push(...PSEUDO_COLUMNS.map((each) => ({ label: inCase(each), type: "property", detail: "of every row" })));
  options.push(...PROPERTIES.map((each) => ({ label: each, type: "property", detail: "WITH", boost: -20 })));
  options.push(...names.functions.map((each) => ({ label: inCase(each), type: "function", detail: "function", apply: `${inCase(each)}(` })));
  return { from: word?.from ?? context.pos, options, validFor: /^[\w@]*$/ };
}

/** A stream or table by its name, or by the alias that the text gives it. */
function sourceNamed(name: string, names: SqlNames, text: string): SqlNames["sources"][number] | undefined {
  const own = names.sources.find((each) => each.name.toLowerCase() === name.toLowerCase());
  return own ?? names.sources.find((each) => new RegExp(`(?:^|[^\\w])\`?${escaped(each.name)}\`?\\s+(?:as\\s+)?${escaped(name)}(?:[^\\w]|$)`, "i").test(text));
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
