// CodeMirror, in a part of its own that is loaded when it is needed.

import { json } from "@codemirror/lang-json";
import { MergeView } from "@codemirror/merge";
import { EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { basicSetup } from "codemirror";
import { colours, look, shadow } from "./codemirror_look";

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

export function difference(parent: HTMLElement, before: string, after: string): () => void {
  const side = (doc: string, label: string) => ({
    doc,
    extensions: [basicSetup, json(), look, colours, EditorState.readOnly.of(true), EditorView.contentAttributes.of({ "aria-label": label }), EditorView.lineWrapping],
  });
  const root = shadow(parent);
  const view = new MergeView({ a: side(before, "Earlier version"), b: side(after, "Later version"), parent: root, root, collapseUnchanged: { margin: 3 } });
  return () => view.destroy();
}
