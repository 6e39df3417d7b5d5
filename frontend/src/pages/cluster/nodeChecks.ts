import type { ClusterNode, NodeCheck } from "../../api/types";
import { capital, count, relative } from "../../lib/format";

export const CAUSE_WORDS: Record<NodeCheck["cause"], string> = {
  joined: "it joined", returned: "it is back", faults: "runs failed on it", asked: "asked for", again: "the last one failed",
};

export const WITHHELD_WORDS: Record<"checking" | "failed", string> = { checking: "being checked", failed: "failed its check" };

/** Failed ones first, then what was not known. */
export function inOrder(items: NodeCheck["items"]): NodeCheck["items"] {
  const rank = { failed: 0, unknown: 1, passed: 2 };
  return [...items].sort((a, b) => rank[a.result] - rank[b.result]);
}

/** Nodes whose check keeps them from work, is under way, or was waived: those without work first. */
export function nodesToCheck(nodes: ClusterNode[]): ClusterNode[] {
  const rank = ({ check }: ClusterNode) => (check.state === "failed" ? 0 : check.state === "checking" ? 1 : 2);
  return nodes
    .filter(({ check }) => check.state !== null || check.open !== null || check.waived_at !== null)
    .sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name, "en", { numeric: true }));
}

/** "Passed 3 min ago (it joined). The next is awaited." */
export function checkSentence(check: ClusterNode["check"], now: Date): string {
  const { last, open } = check;
  const parts: string[] = [];
  if (last?.ended_at) {
    const by = last.asked_by ? ` by ${last.asked_by}` : "";
    parts.push(`${last.passed ? "Passed" : "Failed"} ${relative(new Date(last.ended_at), now)} (${CAUSE_WORDS[last.cause]}${by})`);
  }
  if (check.failures > 1) parts.push(`${count(check.failures, "failure")} in a row`);
  if (open) parts.push(open.begun_at ? `one is under way (${CAUSE_WORDS[open.cause]})` : `one is awaited (${CAUSE_WORDS[open.cause]})`);
  else if (check.next_at) parts.push(`repeated ${relative(new Date(check.next_at), now)}`);
  if (check.waived_at) parts.push(`used anyway since ${relative(new Date(check.waived_at), now)}${check.waived_by ? `, by ${check.waived_by}` : ""}`);
  return parts.length > 0 ? `${capital(parts.join("; "))}.` : "It was never checked.";
}
