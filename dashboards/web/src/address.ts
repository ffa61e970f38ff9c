// Builds addresses of the server's resources.

// A browser removes "." and ".." from any address, in any spelling. So such a name is sent with a leading "=", which
// the server removes.
const segment = (name: string): string => encodeURIComponent(name).replace(/^(=|%3D)*\.{1,2}$/, (text) => '%3D' + text);

export const path = (...parts: string[]): string => parts.map(segment).join('/');

// Returns the decoded parts of the page's own address, "#/run/NAME?...".
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
