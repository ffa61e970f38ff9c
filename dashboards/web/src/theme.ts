// Light, dark, or as the system has it.
import { h, mark } from './dom';

const THEMES = ['auto', 'light', 'dark'];

export function setTheme(theme: string): void {
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  document.querySelector('#theme')!.replaceChildren(mark('theme'), h('span', { class: 'tt hide-s' }, theme[0].toUpperCase() + theme.slice(1)));
  document.querySelector('#theme')!.setAttribute('aria-label', `Theme: ${theme}`);
}

// A file that is opened may have no storage: the theme is then the window's.
export function nextTheme(): void {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? 'auto') + 1) % 3];
  try {
    localStorage.setItem('theme', next);
  } catch {
    // It is set all the same.
  }
  setTheme(next);
}

export function startTheme(): void {
  let theme = 'auto';
  try {
    theme = localStorage.getItem('theme') ?? theme;
  } catch {
    // As above.
  }
  setTheme(theme);
}
