// Changes what people add to runs: tags, a note, a shown name, archive, delete, undo.
import type { RunEdit, RunRow } from './api';
import { ApiError, editRun } from './api';
import { h, toast } from './dom';
import { clean, count, whole } from './format';
import type { Shell } from './view';

// Returns the tags of a run, as small texts.
export const tagsOf = (run: RunRow): HTMLElement[] => run.labels.tags.map((tag) => h('span', { class: 'runtag' }, '#' + clean(tag, 64)));
// Returns the name that lists show.
export const nameOf = (run: RunRow): string => run.labels.name || run.run;

interface Field { label: string; value: string; multiline?: boolean; required?: boolean; edit(text: string): RunEdit }

const words = (text: string): string[] => text.split(/[\s,]+/).map((one) => one.replace(/^#/, '')).filter(Boolean);

// Sends the edit for each run, one after the other. Returns what failed.
async function send(runs: RunRow[], edit: RunEdit): Promise<string> {
  let failed = '';
  for (const run of runs) {
    try {
      await editRun(run.run, edit);
    } catch (error) {
      failed = `${clean(run.run, 80)}: ${error instanceof ApiError ? error.message : 'the server does not answer'}`;
    }
  }
  return failed;
}

function ask(shell: Shell, title: string, words_: string, field: Field | null, verb: string, done: (text: string) => Promise<string>): void {
  const error = h('p', { class: 'dlgerr', role: 'alert' });
  const input = field ? (field.multiline ? h('textarea', { rows: 3, value: field.value }) : h('input', { type: 'text', value: field.value, autocomplete: 'off' })) : null;
  const button = h('button', { class: 'primary', type: 'submit' }, verb);
  const form = h('form', { novalidate: true, onsubmit: (event: Event) => {
    event.preventDefault();
    const text = input?.value.trim() ?? '';
    if (field?.required && !text) {
      error.textContent = `${field.label}: expected a text.`;
      input?.focus();
      return;
    }
    button.disabled = true;
    void done(text).then((failed) => {
      button.disabled = false;
      error.textContent = failed;
      if (!failed) dialog.close();
    });
  } }, h('h2', {}, title), h('p', { class: 'small sub' }, words_), input && field ? h('label', {}, h('span', { class: 'k' }, field.label), input) : null, error,
  h('div', { class: 'acts' }, h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'), button));
  const dialog = shell.dialog(form);
  (input ?? button).focus();
}

// Returns the buttons for the selected runs; none if the access entry may not change anything.
export function editButtons(shell: Shell, runs: RunRow[], changed: () => void): HTMLElement[] {
  if (!shell.server?.may_change || runs.length === 0) return [];
  const who = localStorage.getItem('who') ?? '';
  const apply = (edit: RunEdit, done: string) => async (): Promise<string> => {
    const failed = await send(runs, { ...edit, who });
    changed();
    if (!failed) toast(done);
    return failed;
  };
  const of = runs.length === 1 ? clean(nameOf(runs[0]), 80) : count(runs.length, 'run');
  const field = (title: string, text: string, one: Field): void => ask(shell, title, text, one, 'Save', (value) => apply(one.edit(value), 'Saved')());
  const button = (text: string, act: () => void): HTMLElement => h('button', { class: 'small', onclick: act }, text);
  const now = (edit: RunEdit, done: string) => (): void => { void apply(edit, done)().then((failed) => { if (failed) toast(failed); }); };
  const archived = runs.every((run) => run.labels.archived);
  const out = [button('Tag…', () => field(`Tag ${of}`, 'Tags are words; a minus removes one: -old.', { label: 'Tags', value: '', required: true, edit: (text) => ({ add_tags: words(text).filter((one) => one[0] !== '-'), remove_tags: words(text).filter((one) => one[0] === '-').map((one) => one.slice(1)) }) }))];
  out.push(button('Note…', () => field(`Note of ${of}`, 'For the next reader. An empty note is removed.', { label: 'Note', value: runs.length === 1 ? runs[0].labels.note : '', multiline: true, edit: (note) => ({ note }) })));
  if (runs.length === 1) out.push(button('Rename…', () => field(`Rename ${of}`, `Lists show this name. The run is still ${clean(runs[0].run, 120)} for commands.`, { label: 'Name', value: nameOf(runs[0]), edit: (name) => ({ name: name === runs[0].run ? '' : name }) })));
  out.push(button(archived ? 'Unarchive' : 'Archive', now({ archived: !archived }, archived ? 'Listed again' : 'Archived')));
  if (runs.every((run) => run.labels.deleted)) out.push(button('Restore', now({ deleted: false }, 'Restored')));
  else out.push(button('Delete…', () => ask(shell, `Delete ${of}`, `The ${runs.length === 1 ? 'run' : `${whole(runs.length)} runs`} and the incidents are hidden. Undo restores them until the server removes their data. A run with connected ranks is not deleted.`, null, 'Delete', apply({ deleted: true }, 'Deleted'))));
  out.push(button('Undo', now({ undo: true }, 'The last edit is undone')));
  return out;
}
