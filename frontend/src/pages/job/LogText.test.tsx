import { renderToStaticMarkup } from "react-dom/server";
import { expect, it } from "vitest";
import { LogText } from "./LogText";

const shown = (text: string, search = "") => renderToStaticMarkup(<LogText text={text} search={search} />);

it("leaves out a terminal's colour codes", () => {
  expect(shown("\u001b[1;31mloss\u001b[0m is 0.5\n\u001b]8;;https://example.org\u0007link\u001b]8;;\u0007 \u001b[38;5;208mx\u001b[K\n")).toBe('<div class="">loss is 0.5</div><div class="">link x</div>');
});

it("reads level, time and search without them", () => {
  expect(shown("\u001b[32m12:00:01\u001b[0m \u001b[31mERROR\u001b[0m lo\u001b[1mss\u001b[0m", "loss")).toBe('<div class="error"><span class="lt">12:00:01 </span>ERROR <mark>loss</mark></div>');
});

it("shows markup as text", () => {
  expect(shown("<b>\u001b[31m</b>")).toContain("&lt;b&gt;&lt;/b&gt;");
});

it("cuts a very long line and says by how much", () => {
  const html = shown("x".repeat(7000));
  expect(html).toContain("x".repeat(4000) + "<button");
  expect(html).toContain("3,000 more characters");
  expect(html).not.toContain("x".repeat(4001));
});

it("shows of a progress bar its last state, and lines as they end", () => {
  const bar = Array.from({ length: 100 }, (_, n) => `\r${n}%|###`).join("");
  expect(shown(`epoch 1\r\n${bar}\n${bar}\r`)).toBe('<div class="">epoch 1</div><div class="">99%|###</div><div class="">99%|###</div>');
  expect(shown("x\u2028y\u0085z\n")).toBe('<div class="">x\u2028yz</div>');
});

it("lets no text turn its direction", () => {
  expect(shown("safe\u202egnp.exe\u0007")).toBe('<div class="">safegnp.exe</div>');
});
