// Addresses of what the server says.

// A browser takes "." and ".." out of any address, however they are written: such a name travels with a "=" before
// it, which the server takes off.
const segment = (name: string): string => encodeURIComponent(name).replace(/^(=|%3D)*\.{1,2}$/, (text) => '%3D' + text);

export const path = (...parts: string[]): string => parts.map(segment).join('/');

// The parts of the page's own address, "#/run/NAME?..."; its names as they are.
export function partsOf(hash: string): string[] {
  const place = hash.replace(/^#/, '').split('?')[0];
  return place.split('/').filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}
