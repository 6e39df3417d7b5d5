import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { get, send } from "./client";
import type { Destination, NewDestination, NoticeDelivery, Page } from "./types";

const ROOT = "notifications/destinations";
/** Lines of the log that are shown. */
export const LOG_LINES = 50;

export interface Destinations extends Page<Destination> {
  email_available: boolean;
}

export const useDestinations = () =>
  useQuery({ queryKey: ["destinations"], queryFn: ({ signal }) => get<Destinations>(ROOT, { limit: 200 }, signal), refetchInterval: 15_000 });

export const useDeliveries = (id: number) =>
  useQuery({ queryKey: ["deliveries", id], queryFn: ({ signal }) => get<Page<NoticeDelivery>>(`${ROOT}/${id}/deliveries`, { limit: LOG_LINES }, signal), refetchInterval: 5_000 });

function useDestinationChange<T, R>(change: (input: T) => Promise<R>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: () => Promise.all(["destinations", "deliveries"].map((key) => client.invalidateQueries({ queryKey: [key] }))),
  });
}

export interface DestinationWish {
  kind: Destination["kind"];
  name: string;
  url: string | null;
  events: Destination["events"];
  own_jobs: boolean;
  project: string | null;
  waiting_minutes: number;
}
/** A URL that is left out stays; the kind never changes. */
export type DestinationPatch = Partial<Omit<DestinationWish, "kind">> & { id: number; enabled?: boolean };

export const useCreateDestination = () => useDestinationChange((wish: DestinationWish) => send<NewDestination>("POST", ROOT, wish));
export const useChangeDestination = () => useDestinationChange(({ id, ...patch }: DestinationPatch) => send<Destination>("PATCH", `${ROOT}/${id}`, patch));
export const useRemoveDestination = () => useDestinationChange((id: number) => send<void>("DELETE", `${ROOT}/${id}`));
export const useRotateDestination = () => useDestinationChange((id: number) => send<{ secret: string }>("POST", `${ROOT}/${id}/rotate`, {}));
export const useTestDestination = () => useDestinationChange((id: number) => send<NoticeDelivery>("POST", `${ROOT}/${id}/test`, {}));
export const useSendAgain = () => useDestinationChange((id: number) => send<NoticeDelivery>("POST", `notifications/deliveries/${id}/again`, {}));
