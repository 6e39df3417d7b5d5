import type { ReactNode } from "react";
import type { Glyph } from "../lib/job/jobState";

const PATHS = {
  home: <path d="M2.8 7.2 8 2.8l5.2 4.4v6H9.8V9.6H6.2v3.6H2.8z" />,
  jobs: <path d="M2.5 4h11M2.5 8h11M2.5 12h7" />,
  plus: <path d="M8 3v10M3 8h10" />,
  sliders: <path d="M2.5 5h6.2M12 5h1.5M2.5 11H4M7.3 11h6.2M10.3 3.4v3.2M5.7 9.4v3.2" />,
  chart: <path d="M2.8 13.2h10.4M4.6 13V8.4M8 13V3.4M11.4 13V6.2" />,
  bell: <path d="M4 11.4V7a4 4 0 0 1 8 0v4.4l1.2 1.4H2.8zM6.8 14.2h2.4" />,
  key: <><circle cx="5.4" cy="10.6" r="2.7" /><path d="m7.4 8.6 5.4-5.4M10.6 5.4l1.9 1.9" /></>,
  search: <><circle cx="7" cy="7" r="4.2" /><path d="m10.2 10.2 3.3 3.3" /></>,
  moon: <path d="M13 9.6A5.4 5.4 0 0 1 6.4 3a5.4 5.4 0 1 0 6.6 6.6z" />,
  sun: <><circle cx="8" cy="8" r="2.6" /><path d="M8 1.6v1.6M8 12.8v1.6M1.6 8h1.6M12.8 8h1.6M3.5 3.5l1.1 1.1M11.4 11.4l1.1 1.1M3.5 12.5l1.1-1.1M11.4 4.6l1.1-1.1" /></>,
  screen: <path d="M2.3 3.3h11.4v7.4H2.3zM6 13.3h4M8 10.8v2.4" />,
  lock: <><rect x="3.6" y="7.2" width="8.8" height="6.2" rx="1.4" /><path d="M5.4 7V5.2a2.6 2.6 0 0 1 5.2 0V7" /></>,
  cross: <path d="m4 4 8 8M12 4l-8 8" />,
  download: <path d="M8 2.5v7.4M4.8 7 8 10.2 11.2 7M3 13.2h10" />,
  menu: <path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h11" />,
  warn: <path d="M8 2.4 14 13H2zM8 6.4v3M8 11.1v.4" />,
  flag: <path d="M3.5 14V2.5M3.5 3h8.2l-1.8 3 1.8 3H3.5" />,
  scales: <path d="M8 2.8v10.4M5 13.2h6M3 5h10M3 5l-1.4 4h2.8zM13 5l-1.4 4h2.8z" />,
  even: <><path d="M2 8h12" /><circle cx="4.4" cy="5.4" r="1.1" /><circle cx="8" cy="10.6" r="1.1" /><circle cx="11.6" cy="5.4" r="1.1" /></>,
  node: <path d="M2.8 3h10.4v4H2.8zM2.8 9h10.4v4H2.8zM5 5h.4M5 11h.4" />,
  undo: <path d="M5.6 3.4 2.8 6.2 5.6 9M3 6.2h6.2a3.6 3.6 0 0 1 0 7.2H6" />,
  copy: <path d="M5.5 5.5h7.7v7.7H5.5zM3.5 10.4h-.7V2.8h7.6v.7" />,
  check: <path d="m3.2 8.4 3.1 3.1 6.5-7" />,
  pause: <path d="M5.5 3.5v9M10.5 3.5v9" />,
  resume: <path d="M5 3.2 12 8l-7 4.8z" />,
  again: <path d="M12.8 5.2A5.4 5.4 0 1 0 13.4 8M13 2.4v3h-3" />,
  edit: <path d="M3 13h2.6l7-7L10 3.4l-7 7zM8.6 4.8l2.6 2.6" />,
  speed: <path d="M3.2 12.4a6 6 0 1 1 9.6 0M8 9.6l2.6-3.4" />,
  folder: <path d="M2.5 12.6V4h4l1.4 1.8h5.6v6.8z" />,
  people: <><circle cx="6" cy="5.6" r="2.3" /><path d="M2.2 13c.2-2.4 1.7-3.8 3.8-3.8S9.6 10.6 9.8 13M10.4 3.6a2.1 2.1 0 0 1 0 4M11.4 9.5c1.4.4 2.3 1.6 2.4 3.5" /></>,
  coin: <><circle cx="8" cy="8" r="5.4" /><path d="M9.8 6.2c-.3-.7-1-1-1.8-1-1 0-1.8.5-1.8 1.4C6.2 8.6 9.9 7.6 9.9 9.5c0 .9-.9 1.4-1.9 1.4-.9 0-1.7-.4-2-1.1M8 4.2v7.6" /></>,
  list: <path d="M5.8 4h7.4M5.8 8h7.4M5.8 12h7.4M2.8 4h.4M2.8 8h.4M2.8 12h.4" />,
  table: <path d="M2.6 3.2h10.8v9.6H2.6zM2.6 6.4h10.8M2.6 9.6h10.8M6.4 6.4v6.4" />,
  flask: <path d="M6.4 2.5h3.2M7 2.5v4L3.2 12.4c-.4.7 0 1.4.8 1.4h8c.8 0 1.2-.7.8-1.4L9 6.5v-4M5 10h6" />,
  up: <path d="M8 12.8V3.4M4.4 7 8 3.4 11.6 7" />,
} satisfies Record<string, ReactNode>;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.4" strokeLinecap="round" strokeLinejoin="round" aria-hidden>
      {PATHS[name]}
    </svg>
  );
}

const GLYPHS: Record<Glyph, ReactNode> = {
  "ring-dotted": <circle cx="7" cy="7" r="5.2" strokeDasharray="1.6 2.5" />,
  arc: <><circle cx="7" cy="7" r="5.2" opacity=".28" /><path d="M7 1.8A5.2 5.2 0 0 1 12.2 7" /></>,
  play: <><circle cx="7" cy="7" r="5.2" /><path d="M5.8 4.8 9.2 7l-3.4 2.2z" fill="currentColor" stroke="none" /></>,
  arrows: <path d="M8.4 5.6 12 2M9 2h3v3M5.6 8.4 2 12M5 12H2V9" />,
  tick: <><circle cx="7" cy="7" r="5.9" fill="currentColor" stroke="none" /><path d="m4.4 7.2 1.8 1.8 3.4-3.7" stroke="var(--surface)" /></>,
  octagon: <><path d="M4.6 1.2h4.8l3.4 3.4v4.8l-3.4 3.4H4.6L1.2 9.4V4.6z" fill="currentColor" stroke="none" /><path d="m5 5 4 4M9 5 5 9" stroke="var(--surface)" /></>,
  struck: <><circle cx="7" cy="7" r="5.2" /><path d="m3.5 10.5 7-7" /></>,
};

export function StateGlyph({ glyph, size = 14 }: { glyph: Glyph; size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 14 14" fill="none" stroke="currentColor" strokeWidth="1.5" strokeLinecap="round" strokeLinejoin="round" aria-hidden>
      {GLYPHS[glyph]}
    </svg>
  );
}

export function Logo({ size = 22 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 24 24" aria-hidden>
      <rect x="1" y="1" width="22" height="22" rx="6" fill="var(--btn)" />
      <g fill="none" stroke="var(--btn-ink)" strokeWidth="1.8" strokeLinecap="round">
        <path d="M5.5 11.5h13" />
        <path d="M7 11.5a5 5 0 0 0 10 0" />
        <path d="M9 7.5h6" />
      </g>
    </svg>
  );
}
