import { expect, it } from "vitest";
import { ApiError } from "./client";

it("keeps names to themselves in what the portal says of an error", () => {
  const error = new ApiError({ status: 400, detail: "project: תמונה is archived", errors: [{ field: "project", message: "תמונה is archived" }] } as never);
  expect(error.message).toBe("project: \u2068תמונה\u2069 is archived");
  expect(error.errors).toEqual([{ field: "project", message: "\u2068תמונה\u2069 is archived" }]);
});
