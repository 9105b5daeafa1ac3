// CodeMirror, in a part of its own that is loaded when it is needed.

import { json } from "@codemirror/lang-json";
import { MergeView } from "@codemirror/merge";
import { EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { tags } from "@lezer/highlight";
import { basicSetup } from "codemirror";

const look = EditorView.theme({
  "&": { backgroundColor: "var(--surface)", color: "var(--text)", fontSize: "13px" },
  ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--muted)", border: "0" },
  "&.cm-focused": { outline: "2px solid var(--accent)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  ".cm-collapsedLines": { color: "var(--muted)", background: "var(--raised)" },
  ".cm-changedLine": { backgroundColor: "var(--warning-surface) !important" },
  ".cm-selectionBackground": { backgroundColor: "var(--accent-surface) !important" },
});

const colours = syntaxHighlighting(
  HighlightStyle.define([
    { tag: tags.propertyName, color: "var(--accent)" },
    { tag: tags.string, color: "var(--ok)" },
    { tag: tags.number, color: "var(--warning)" },
    { tag: [tags.bool, tags.null], color: "var(--bad)" },
  ]),
);

export function jsonEditor(parent: HTMLElement, label: string, text: string, readOnly: boolean, onInput: (text: string) => void): EditorView {
  const changed = EditorView.updateListener.of((update) => {
    if (update.docChanged) onInput(update.state.doc.toString());
  });
  const state = EditorState.create({
    doc: text,
    extensions: [basicSetup, json(), look, colours, changed, EditorState.readOnly.of(readOnly), EditorView.contentAttributes.of({ "aria-label": label }), EditorView.lineWrapping],
  });
  const root = shadow(parent);
  return new EditorView({ state, parent: root, root });
}

/** The page's policy allows no style elements. In a shadow root the library uses constructed style sheets, which need none. */
function shadow(parent: HTMLElement): ShadowRoot {
  const host = document.createElement("div");
  parent.replaceChildren(host);
  return host.attachShadow({ mode: "open" });
}

export function difference(parent: HTMLElement, before: string, after: string): () => void {
  const side = (doc: string, label: string) => ({
    doc,
    extensions: [basicSetup, json(), look, colours, EditorState.readOnly.of(true), EditorView.contentAttributes.of({ "aria-label": label }), EditorView.lineWrapping],
  });
  const root = shadow(parent);
  const view = new MergeView({ a: side(before, "Earlier version"), b: side(after, "Later version"), parent: root, root, collapseUnchanged: { margin: 3 } });
  return () => view.destroy();
}
