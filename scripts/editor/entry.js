// The editor of the course: CodeMirror 6 for Python, made once and committed as inlayer/learn/page/editor.js.
//
// - Tab indents; Escape, then Tab leaves, so that nobody who has no mouse is caught in it
// - its styles are <style> elements with the nonce of the answer: the policy of the page has no 'unsafe-inline'
// - colors are the page's own variables, so that light, dark and the switch work without being told

import { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab, isolateHistory } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { Annotation, EditorState, StateEffect, StateField } from "@codemirror/state";
import {
  Decoration, drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";

const colors = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.controlKeyword, tags.definitionKeyword, tags.moduleKeyword],
    color: "var(--code-keyword)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null, tags.self], color: "var(--code-number)" },
  { tag: [tags.comment, tags.docComment], color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.function(tags.definition(tags.variableName)), tags.definition(tags.className)], fontWeight: "600" },
]);

const look = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--surface)", fontSize: "var(--small)" },
  "&.cm-focused": { outline: "2px solid var(--focus)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", overflow: "auto" },
  ".cm-content": { caretColor: "var(--ink)", padding: "8px 0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)", borderLeftWidth: "2px" },
  ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--muted)", border: "0" },
  ".cm-lineNumbers .cm-gutterElement": { padding: "0 8px 0 12px", minWidth: "36px" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--accent) 6%, transparent)" },
  ".cm-activeLineGutter": {
    backgroundColor: "color-mix(in srgb, var(--accent) 14%, transparent)", color: "var(--ink)",
  },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "color-mix(in srgb, var(--accent) 26%, transparent)",
  },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--accent-soft)", outline: "1px solid var(--accent)" },
  "&.cm-focused .cm-nonmatchingBracket": { backgroundColor: "var(--bad-soft)", color: "var(--bad)" },
  ".cm-line.cm-error-line": { backgroundColor: "var(--bad-soft)", boxShadow: "inset 3px 0 0 var(--bad)" },
});

// Text typed over a selection is put there by the editor: Chromium would join the lines itself and write the style they
// had into the markup, which the policy of the page stops, and says so.
const overSelection = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { from, to, empty } = view.state.selection.main;
    if (event.inputType !== "insertText" || event.isComposing || !event.data || empty) return false;
    event.preventDefault();
    const insert = () => view.state.update(view.state.replaceSelection(event.data), {
      userEvent: "input.type", scrollIntoView: true,
    });
    const handlers = view.state.facet(EditorView.inputHandler);
    if (!handlers.some((handle) => handle(view, from, to, event.data, insert))) view.dispatch(insert());
    return true;
  },
});

const replaced = Annotation.define(); // the text was set from outside: nobody typed
const setErrorLine = StateEffect.define();
const errorLine = StateField.define({
  create: () => Decoration.none,
  update(lines, change) {
    for (const effect of change.effects) if (effect.is(setErrorLine)) return effect.value;
    return change.docChanged ? Decoration.none : lines;
  },
  provide: (field) => EditorView.decorations.from(field),
});

// An editor inside `parent`. `typed` hears of every change, `submit` of Ctrl+Enter (Cmd+Enter on a Mac).
function create({ parent, text, nonce, label, describedBy, typed, submit }) {
  const state = (doc) => EditorState.create({
    doc,
    extensions: [
      EditorView.cspNonce.of(nonce),
      keymap.of([
        { key: "Mod-Enter", run: () => (submit(), true), preventDefault: true },
        { key: "Ctrl-Enter", run: () => (submit(), true), preventDefault: true },
        ...closeBracketsKeymap, ...defaultKeymap.filter(({ key }) => key !== "Mod-Enter"), ...historyKeymap,
        indentWithTab,
      ]),
      lineNumbers(), highlightActiveLine(), highlightActiveLineGutter(), drawSelection(), history(), indentOnInput(),
      bracketMatching(), closeBrackets(), python(), indentUnit.of("    "), EditorState.tabSize.of(4),
      syntaxHighlighting(colors), look, errorLine, overSelection,
      EditorView.contentAttributes.of({ "aria-label": label, "aria-describedby": describedBy, spellcheck: "false" }),
      EditorView.updateListener.of((update) => {
        if (update.docChanged && !update.transactions.some((one) => one.annotation(replaced))) typed();
      }),
    ],
  });
  const view = new EditorView({ state: state(text), parent });
  return {
    text: () => view.state.doc.toString(),
    focus: () => view.focus(),
    destroy: () => view.destroy(),
    // The history stays: Ctrl+Z brings back what was replaced, to its last letter.
    replace(next) {
      view.dispatch({
        changes: { from: 0, to: view.state.doc.length, insert: next },
        annotations: [replaced.of(true), isolateHistory.of("full")],
      });
    },
    // Mark a line as the place of an error, or none.
    markError(number) {
      const exists = Number.isInteger(number) && number >= 1 && number <= view.state.doc.lines;
      const marked = exists
        ? Decoration.set([Decoration.line({ class: "cm-error-line" }).range(view.state.doc.line(number).from)])
        : Decoration.none;
      view.dispatch({ effects: setErrorLine.of(marked) });
    },
  };
}

globalThis.inlayerEditor = { create };
