const TEXT = '; charset=utf-8';

/** What sites are made of; everything else is `application/octet-stream`. */
const TYPES: Readonly<Record<string, string>> = {
  '.html': `text/html${TEXT}`,
  '.htm': `text/html${TEXT}`,
  '.css': `text/css${TEXT}`,
  '.js': `text/javascript${TEXT}`,
  '.mjs': `text/javascript${TEXT}`,
  '.txt': `text/plain${TEXT}`,
  '.md': `text/markdown${TEXT}`,
  '.csv': `text/csv${TEXT}`,
  '.vtt': `text/vtt${TEXT}`,
  '.ics': `text/calendar${TEXT}`,
  '.json': 'application/json',
  '.map': 'application/json',
  '.jsonld': 'application/ld+json',
  '.webmanifest': 'application/manifest+json',
  '.xml': 'application/xml',
  '.atom': 'application/atom+xml',
  '.rss': 'application/rss+xml',
  '.xhtml': 'application/xhtml+xml',
  '.pdf': 'application/pdf',
  '.wasm': 'application/wasm',
  '.zip': 'application/zip',
  '.gz': 'application/gzip',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.jpg': 'image/jpeg',
  '.jpeg': 'image/jpeg',
  '.gif': 'image/gif',
  '.webp': 'image/webp',
  '.avif': 'image/avif',
  '.ico': 'image/x-icon',
  '.bmp': 'image/bmp',
  '.woff': 'font/woff',
  '.woff2': 'font/woff2',
  '.ttf': 'font/ttf',
  '.otf': 'font/otf',
  '.mp3': 'audio/mpeg',
  '.m4a': 'audio/mp4',
  '.ogg': 'audio/ogg',
  '.wav': 'audio/wav',
  '.mp4': 'video/mp4',
  '.webm': 'video/webm',
};

/** The media type of a file name's extension. */
export function mediaType(extension: string): string {
  const known = extension.toLowerCase();
  return Object.hasOwn(TYPES, known)
    ? (TYPES[known] ?? 'application/octet-stream')
    : 'application/octet-stream';
}
