import { createContext, useContext, useEffect, useMemo, useSyncExternalStore } from "react";
import { get } from "../api/client";
import { useSession } from "../api/hooks";
import type { ClusterState, CoarseState, Job, ProjectState } from "../api/types";
import { LiveStore, type Connection, type SocketLike } from "./live";
import type { Snapshot } from "./stream";

export const LiveContext = createContext<LiveStore | null>(null);

export function createLiveStore(onRefused: (error: unknown) => void): LiveStore {
  return new LiveStore({
    open: () => {
      const scheme = window.location.protocol === "https:" ? "wss" : "ws";
      return new WebSocket(`${scheme}://${window.location.host}/ws/v1/live`) as unknown as SocketLike;
    },
    fetchStream: (name) => get<Snapshot>(`live/${encodeURIComponent(name)}`),
    onRefused,
    now: Date.now,
  });
}

function useStore(): LiveStore {
  const store = useContext(LiveContext);
  if (!store) throw new Error("LiveContext is missing");
  return store;
}

/** Watches the cluster and every project of the session for as long as somebody is signed in. */
export function useWatch(): void {
  const store = useStore();
  const { data } = useSession();
  const names = data?.user ? ["cluster", ...data.projects.map((project) => `project:${project.key}`)].join(" ") : "";
  useEffect(() => {
    if (names) store.watch(names.split(" "));
    else store.stop();
  }, [store, names]);
}

export function useConnection(): Connection {
  const store = useStore();
  return useSyncExternalStore(store.subscribe, () => store.connection);
}

export function useReconnect(): () => void {
  return useStore().connect;
}

export function useCluster(): ClusterState | null {
  const store = useStore();
  return useSyncExternalStore(store.subscribe, () => store.state("cluster") as ClusterState | null);
}

function useVersion(): number {
  const store = useStore();
  return useSyncExternalStore(store.subscribe, () => store.version);
}

export function useProjectStates(): ProjectState[] {
  const store = useStore();
  const version = useVersion();
  const { data } = useSession();
  return useMemo(() => {
    void version;
    const states = (data?.projects ?? []).map((project) => store.state(`project:${project.key}`) as ProjectState | null);
    return states.filter((state): state is ProjectState => state !== null);
  }, [store, version, data]);
}

/** A job as this reader may see it: `full` is null for jobs of other people's projects. */
export interface JobView {
  number: number;
  name: string | null;
  project: string;
  state: CoarseState;
  gpus: number;
  full: Job | null;
}

export function joinJobs(cluster: ClusterState | null, projects: ProjectState[]): Map<number, JobView> {
  const views = new Map<number, JobView>();
  for (const job of Object.values(cluster?.jobs ?? {})) views.set(job.number, { ...job, name: null, full: null });
  for (const project of projects) {
    for (const job of Object.values(project.jobs ?? {})) {
      const gpus = job.allocation?.count ?? 0;
      views.set(job.number, { number: job.number, name: job.name, project: job.project.key, state: job.state, gpus, full: job });
    }
  }
  return views;
}

export function useLiveJobs(): Map<number, JobView> {
  const cluster = useCluster();
  const projects = useProjectStates();
  return useMemo(() => joinJobs(cluster, projects), [cluster, projects]);
}
