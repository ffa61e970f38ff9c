// Sets the theme: light, dark, or that of the system.
import { h, mark } from './dom';

const THEMES = ['auto', 'light', 'dark'];

export function setTheme(theme: string): void {
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  document.querySelector('#theme')!.replaceChildren(mark('theme'), h('span', { class: 'tt hide-s' }, theme[0].toUpperCase() + theme.slice(1)));
  document.querySelector('#theme')!.setAttribute('aria-label', `Theme: ${theme}`);
}

// A page that was opened as a file may have no storage. The theme then applies only to the window.
export function nextTheme(): void {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? 'auto') + 1) % 3];
  try {
    localStorage.setItem('theme', next);
  } catch {
    // Sets the theme also without storage.
  }
  setTheme(next);
}

export function startTheme(): void {
  let theme = 'auto';
  try {
    theme = localStorage.getItem('theme') ?? theme;
  } catch {
    // There may be no storage, as above.
  }
  setTheme(theme);
}
