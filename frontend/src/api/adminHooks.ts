import { useMutation, useQueryClient } from "@tanstack/react-query";
import { send } from "./client";
import { usePages } from "./pages";
import type { Account, AuditEntry, Discount, Rate } from "./types";

export interface PeopleFilter {
  search: string;
  kind: Account["kind"];
  is_admin: boolean | null;
  is_active: boolean | null;
}
export const usePeople = (filter: PeopleFilter) => usePages<Account>("people", { ...filter });

export interface AuditFilter {
  actor: string;
  action: string;
  target: string;
  from_at: string;
  to_at: string;
}
export const useAudit = (filter: AuditFilter) => usePages<AuditEntry>("audit", { ...filter });

/** Those in force and to come, or those that were. */
export const useRates = (ended: boolean, enabled = true) => usePages<Rate>("prices", { ended, limit: ended ? 50 : 200 }, { enabled });
export const useDiscounts = (ended: boolean, enabled = true) => usePages<Discount>("discounts", { ended, limit: ended ? 50 : 200 }, { enabled });

function useAdminChange<T, R>(change: (input: T) => Promise<R>, also: string[] = []) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: () => Promise.all(["pages", ...also].map((name) => client.invalidateQueries({ queryKey: [name] }))),
  });
}
export const useChangePerson = () =>
  useAdminChange(({ id, ...change }: { id: number; is_admin?: boolean; is_active?: boolean; unix_account?: string; confirm_unproved?: true }) => send<Account>("PATCH", `people/${id}`, change), ["session"]);
export const useEndSessions = () => useAdminChange((id: number) => send<{ ended: number }>("DELETE", `people/${id}/sessions`), ["session"]);

export interface RateWish {
  resource: Rate["resource"];
  accelerator_type: string | null;
  price_per_hour: string;
  valid_from_at: string | null;
}
export const useSetRate = () => useAdminChange((wish: RateWish) => send<Rate>("POST", "prices", wish), ["accelerator-types"]);
export interface DiscountWish {
  project: string;
  percent: string;
  valid_from_at: string | null;
}
export const useSetDiscount = () => useAdminChange((wish: DiscountWish) => send<Discount>("POST", "discounts", wish));
