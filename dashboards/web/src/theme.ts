// Sets the theme: light, dark, or that of the system.
import { h, mark } from './dom';

const THEMES = ['auto', 'light', 'dark'];

export function setTheme(theme: string): void {
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  document.querySelector('#theme')!.replaceChildren(mark('theme'), h('span', { class: 'tt hide-s' }, theme[0].toUpperCase() + theme.slice(1)));
  document.querySelector('#theme')!.setAttribute('aria-label', `Theme: ${theme}`);
}

// A page opened as a file may have no storage: the theme then applies to the window only.
export function nextTheme(): void {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? 'auto') + 1) % 3];
  try {
    localStorage.setItem('theme', next);
  } catch {
    // The theme is set anyway.
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
