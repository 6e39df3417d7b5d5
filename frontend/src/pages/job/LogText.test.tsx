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

it("leaves a very long line as it is", () => {
  const line = "\u001b]".repeat(3000);
  expect(shown(line)).toContain(line);
});
