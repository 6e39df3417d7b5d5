import { describe, expect, it } from "vitest";
import type { JobColumn } from "../../api/types";
import { columnsOf, COLUMN_ORDER } from "../../lib/job/jobColumns";
import { GROUPS, isNarrowed, paramsOf, paramsOfView, queryOf, readFilters, showsView, statesOf, viewBody } from "./jobFilters";

const read = (text: string) => readFilters(new URLSearchParams(text));

describe("filters of the list of jobs", () => {
  it("come from the address and go back to it", () => {
    const text = "state=live&search=night&project=vision&owner=me&on_hold=true&from=2026-11-02&to=2026-11-03&ordering=number&label=a%3A1&label=b";
    expect(paramsOf(read(text)).toString()).toBe(text);
    expect(paramsOf(read("")).toString()).toBe("");
    expect(paramsOf(read("ordering=-number&nonsense=1")).toString()).toBe("");
    expect(paramsOf(read("state=failed"), ["state", "cost"]).toString()).toBe("state=failed&columns=state%2Ccost");
  });

  it("know what a parameter was called before", () => expect(paramsOf(read("held=false")).toString()).toBe("on_hold=false"));

  it("ask the portal for whole days of the browser's time zone", () => {
    const asked = queryOf(read("from=2026-11-02&to=2026-11-03&on_hold=maybe&search=%20x%20"));
    expect(asked.submitted_from_at).toBe(new Date("2026-11-02T00:00").toISOString());
    expect(asked.submitted_to_at).toBe(new Date("2026-11-04T00:00").toISOString());
    expect(asked.on_hold).toBe("");
    expect(asked.search).toBe("x");
    expect(queryOf(read("from=soon")).submitted_from_at).toBe("");
  });

  it("know groups of states, single ones and several", () => {
    expect(statesOf("live")).toEqual(["queued", "starting", "running", "rescaling"]);
    expect(statesOf("running,failed,bored")).toEqual(["running", "failed"]);
    expect(statesOf("")).toEqual([]);
    expect(new Set(GROUPS.map((group) => group.key)).size).toBe(GROUPS.length);
  });

  it("unfold arrays as soon as they are about jobs", () => {
    expect(isNarrowed(read("project=vision&ordering=number"))).toBe(false);
    for (const text of ["label=a", "owner=me", "state=live", "on_hold=false", "from=2026-01-01"]) expect(isNarrowed(read(text)), text).toBe(true);
  });
});

describe("a saved view", () => {
  const columns: JobColumn[] = ["state", "cost"];
  const saved = (text: string, own: JobColumn[] | null = null) => viewBody("v", read(text), own);

  it("keeps only what is set, as the portal names it", () => {
    expect(saved("state=running&label=a%3A1&on_hold=false&array=57&owner=me", columns)).toEqual({
      name: "v", filters: { state: ["running"], label: ["a:1"], owner: "me", on_hold: false, array: 57 }, ordering: "-number", columns,
    });
    expect(saved("").filters).toEqual({});
  });

  it("opens at the address that it was saved at", () => {
    for (const text of ["", "state=live&project=vision", "state=running,failed&label=a%3A1&label=b", "from=2026-11-02&to=2026-11-30&ordering=number", "search=x&partition=day&model_type=tiny&on_hold=true"]) {
      expect(paramsOfView(saved(text)).toString(), text).toBe(new URLSearchParams(text).toString());
      expect(showsView(new URLSearchParams(text), saved(text))).toBe(true);
    }
    expect(paramsOfView(saved("state=failed", columns)).get("columns")).toBe("state,cost");
  });

  it("is shown by its filters and, where it has them, its columns", () => {
    const view = saved("state=failed", columns);
    expect(showsView(new URLSearchParams("columns=cost,state&state=failed"), view)).toBe(true);
    expect(showsView(new URLSearchParams("state=failed"), view)).toBe(false);
    expect(showsView(new URLSearchParams("state=failed&columns=state"), saved("state=failed"))).toBe(true);
    expect(showsView(new URLSearchParams("state=failed&owner=me"), saved("state=failed"))).toBe(false);
  });
});

describe("columns", () => {
  it("are those that there are, each once, in the table's order", () => {
    expect(columnsOf("cost,state,cost,secret")).toEqual(["state", "cost"]);
    expect(columnsOf(["gpus"])).toEqual(["gpus"]);
    for (const none of ["", "secret", null, undefined, 7]) expect(columnsOf(none)).toBeNull();
    expect(columnsOf(COLUMN_ORDER)).toEqual(COLUMN_ORDER);
  });
});
