import { expect, test } from "vitest";

const SOURCES = import.meta.glob<string>(["./**/*.{ts,tsx}", "!./rooms.test.ts"], { query: "?raw", import: "default", eager: true });
const SPECIFIER = /(?:from|import|mock)\b\s*\(?\s*"(\.[^"]+)"/g;
const SHARED = /^(lib|components)\//;

interface Import {
  from: string;
  to: string;
}

const plain = (path: string) => path.replace(/^\.\//, "").replace(/\.tsx?$/, "");
/** The folder of a page (pages/job), else the first folder; what stands beside main.tsx is a room by itself. */
const room = (path: string) => path.split("/").slice(0, path.startsWith("pages/") ? 2 : 1).join("/");
const isPage = (name: string) => name.startsWith("pages/");

const MODULES = Object.keys(SOURCES).map(plain);
const IMPORTS: Import[] = Object.entries(SOURCES).flatMap(([path, text]) =>
  [...text.matchAll(SPECIFIER)].map(([, specifier = ""]) => ({ from: plain(path), to: plain(new URL(specifier, `file:///${plain(path)}`).pathname.slice(1)) })));
const between = IMPORTS.map(({ from, to }) => ({ from, to, rooms: [room(from), room(to)] as const })).filter(({ rooms }) => rooms[0] !== rooms[1]);
const said = (found: Import[]) => found.map(({ from, to }) => `${from} imports ${to}`);

/** Rooms that reach a module through what is shared. */
function users(module: string): Set<string> {
  const reached = new Set([module]);
  for (const one of reached) {
    if (!SHARED.test(one)) continue;
    for (const { from, to } of IMPORTS) if (to === one && !from.endsWith(".test")) reached.add(from);
  }
  return new Set([...reached].filter((one) => !SHARED.test(one)).map(room));
}

test("every import is seen", () => {
  const styles = /\.css$/;
  expect(IMPORTS.length).toBeGreaterThan(500);
  expect(said(IMPORTS.filter(({ to }) => !styles.test(to) && !MODULES.includes(to)))).toEqual([]);
});

test("only app.tsx imports pages, and no page another", () => {
  expect(said(between.filter(({ from, rooms }) => isPage(rooms[1]) && from !== "app"))).toEqual([]);
});

test("lib and api import neither components, but for the names of icons, nor the shell", () => {
  const found = between.filter(({ rooms: [from, to] }) => ["lib", "api"].includes(from) && ["components", "shell", "testing"].includes(to));
  expect(said(found.filter(({ from, to }) => !from.endsWith(".test") && to !== "components/icons"))).toEqual([]);
});

test("what one page alone uses stands beside it", () => {
  const shared = MODULES.filter((module) => SHARED.test(module) && !module.endsWith(".test"));
  expect(shared.filter((module) => [...users(module)].every(isPage) && users(module).size < 2)).toEqual([]);
});

test("no two names of a folder differ in case alone", () => {
  const seen = MODULES.map((module) => module.toLowerCase());
  expect(MODULES.filter((module, i) => seen.indexOf(module.toLowerCase()) !== i)).toEqual([]);
});
