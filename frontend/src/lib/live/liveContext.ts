import { createContext, useContext, useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import { get } from "../../api/client";
import { useSession } from "../../api/hooks";
import type { CoarseState, Job, LiveCluster, LiveProject as ProjectState } from "../../api/types";
import { fullCluster, fullJob, type ClusterState } from "./blanks";
import { useChosenCluster } from "./cluster";
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

/** The live stream of the cluster that is shown. */
function useClusterStream(): string {
  const chosen = useChosenCluster();
  const clusters = useSession().data?.clusters ?? [];
  return (clusters.find((one) => one.name === chosen) ?? clusters[0])?.stream ?? "cluster";
}

/** Watches the cluster that is shown and every project of the session for as long as somebody is signed in. */
export function useWatch(): void {
  const store = useStore();
  const { data } = useSession();
  const stream = useClusterStream();
  const names = data?.user ? [stream, ...data.projects.map((project) => `project:${project.key}`)].join(" ") : "";
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
  const stream = useClusterStream();
  return useSyncExternalStore(store.subscribe, () => {
    const state = store.state(stream) as LiveCluster | null;
    return state ? fullCluster(state) : null;
  });
}

/** The states of the session's projects; the same array as long as none of them changed. */
export function useProjectStates(): ProjectState[] {
  const store = useStore();
  const { data } = useSession();
  const last = useRef<ProjectState[]>([]);
  const names = data?.projects;
  return useSyncExternalStore(store.subscribe, () => {
    const states = (names ?? []).map((project) => store.state(`project:${project.key}`) as ProjectState | null);
    const known = states.filter((state): state is ProjectState => state !== null);
    const same = known.length === last.current.length && known.every((state, i) => state === last.current[i]);
    return same ? last.current : (last.current = known);
  });
}

/** A job as this reader may see it: `full` is null for jobs of other people's projects. */
export interface JobView {
  number: number;
  name: string | null;
  project: string;
  state: CoarseState;
  gpus: number;
  /** Of its GPU, where it has a part of one. */
  share_percent?: number;
  full: Job | null;
}

const views = new WeakMap<object, JobView>();

function viewOf<T extends object>(source: T, make: () => JobView): JobView {
  const known = views.get(source);
  if (known) return known;
  const made = make();
  views.set(source, made);
  return made;
}

/** Views keep their identity while the job behind them does, so that memoised rows stay put. */
export function joinJobs(cluster: ClusterState | null, projects: ProjectState[]): Map<number, JobView> {
  const all = new Map<number, JobView>();
  for (const job of Object.values(cluster?.jobs ?? {})) all.set(job.number, viewOf(job, () => ({ ...job, name: null, full: null })));
  for (const project of projects) {
    for (const job of Object.values(project.jobs ?? {})) all.set(job.number, viewOf(job, () => fullView(fullJob(job))));
  }
  return all;
}

function fullView(job: Job): JobView {
  return { number: job.number, name: job.name, project: job.project.key, state: job.state, gpus: job.allocation?.count ?? 0, share_percent: job.gpus.share_percent, full: job };
}

/** Of the cluster that is shown, and of the session's projects on all clusters. */
export function useLiveJobs(): Map<number, JobView> {
  const cluster = useCluster();
  const projects = useProjectStates();
  return useMemo(() => joinJobs(cluster, projects), [cluster, projects]);
}

/** Of the cluster that is shown alone. */
export function useClusterJobs(): Map<number, JobView> {
  const name = useCluster()?.cluster.name;
  const jobs = useLiveJobs();
  return useMemo(() => new Map([...jobs].filter(([, job]) => job.full === null || job.full.cluster.name === name)), [jobs, name]);
}
