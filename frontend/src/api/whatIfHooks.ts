import { useMutation, useQuery } from "@tanstack/react-query";
import { request, send, url } from "./client";
import type { NodeWhatIf, WhatIf, WhatIfAnswer } from "./types";

export interface WhatIfWish {
  /** A job's number, or the file of one that is not submitted. */
  of: number | Record<string, unknown>;
  gpus: string[];
}

export const useWhatIf = () =>
  useMutation({
    mutationFn: ({ of, gpus }: WhatIfWish) =>
      typeof of === "number"
        ? request<WhatIf>(url(`jobs/${of}/what-if`, { gpus }), { method: "POST" })
        : request<WhatIf>(url("jobs/what-if", { gpus }), { method: "POST", body: of }),
  });

export const useNodeWhatIf = () =>
  useMutation({ mutationFn: ({ project, type }: { project: string; type: string }) => send<NodeWhatIf>("POST", `projects/${project}/what-if`, { type }) });

const POLL_MS = 500;
const MOST_POLLS = 120;

/** Starts and ends: worked out once somebody asks, so this asks until they are. */
export function useForeseen(key: string | null) {
  return useQuery({
    queryKey: ["what-if", key],
    queryFn: async ({ signal }) => {
      for (let poll = 0; poll < MOST_POLLS; poll += 1) {
        const answer = await request<WhatIfAnswer>(url(`what-ifs/${key}`), { signal });
        if (answer.status === "done") return answer;
        await new Promise((resolve) => { setTimeout(resolve, POLL_MS); });
        signal.throwIfAborted();
      }
      throw new Error("Starts and ends are not worked out.");
    },
    enabled: key !== null,
    retry: false,
    staleTime: Infinity,
  });
}
