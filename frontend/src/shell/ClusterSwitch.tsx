import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { useLocation, useSearchParams } from "react-router";
import type { Session } from "../api/types";
import { chooseCluster, followsCluster, useChosenCluster } from "../lib/live/cluster";

/** The cluster that is shown; a name that is no longer one's is forgotten. */
export function useShownCluster(session: Session | undefined) {
  const chosen = useChosenCluster();
  const clusters = session?.clusters ?? [];
  return clusters.find((one) => one.name === chosen) ?? clusters[0] ?? null;
}

/** The choice goes into the address of pages that follow it, and an address with one is followed. */
export function useClusterInAddress(session: Session): void {
  const shown = useShownCluster(session);
  const chosen = useChosenCluster();
  const client = useQueryClient();
  const { pathname } = useLocation();
  const [params, setParams] = useSearchParams();
  const names = session.clusters.map((one) => one.name);
  const wanted = followsCluster(pathname) ? params.get("cluster") : null;
  const known = wanted !== null && names.includes(wanted);
  const current = shown?.name ?? null;
  useEffect(() => {
    if (chosen !== null && !names.includes(chosen)) chooseCluster(null);
    if (names.length < 2 || !followsCluster(pathname)) return;
    if (known && wanted !== current) choose(client, wanted);
    else if (!known && current !== null) setParams((before) => withCluster(before, current), { replace: true });
  });
}

function withCluster(params: URLSearchParams, name: string): URLSearchParams {
  const changed = new URLSearchParams(params);
  changed.set("cluster", name);
  return changed;
}

type Client = ReturnType<typeof useQueryClient>;

/** What was fetched of another cluster is not shown for this one. */
function choose(client: Client, name: string): void {
  chooseCluster(name);
  void client.resetQueries({ predicate: (query) => query.queryKey[0] !== "session" });
}

export function ClusterSwitch({ session }: { session: Session }) {
  const shown = useShownCluster(session);
  const client = useQueryClient();
  const { pathname } = useLocation();
  const [, setParams] = useSearchParams();
  if (session.clusters.length < 2 || !shown) return null;
  const change = (name: string) => {
    choose(client, name);
    if (followsCluster(pathname)) setParams((before) => withCluster(before, name));
  };
  return (
    <select className="in" aria-label="Cluster shown" value={shown.name} onChange={(event) => change(event.target.value)}>
      {session.clusters.map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}
    </select>
  );
}
