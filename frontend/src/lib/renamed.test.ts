import { expect, it } from "vitest";
import { OLD_PAGES, OLD_PARAMETERS, withNewNames } from "./renamed";

it.each(Object.entries(OLD_PARAMETERS))("reads the parameter %s as %s", (old, now) => {
  expect(withNewNames(new URLSearchParams({ [old]: "true", owner: "me" })).toString()).toBe(`${now}=true&owner=me`);
  expect(withNewNames(new URLSearchParams({ [old]: "true", [now]: "false" })).toString()).toBe(`${now}=false`);
});

it("keeps what was not renamed, and what is given twice", () =>
  expect(withNewNames(new URLSearchParams("label=a&label=b&state=live")).toString()).toBe("label=a&label=b&state=live"));

it.each(Object.entries(OLD_PAGES))("leads from %s to another page that is not an old one", (old, now) => {
  expect(now).not.toBe(old);
  expect(OLD_PAGES[now]).toBeUndefined();
});
