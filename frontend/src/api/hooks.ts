import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ApiError, get, request, send, url } from "./client";
import type {
  AcceleratorType, ApiToken, Artifacts, BrowserSession, BuildLog, ClusterTimeline, Explanation, History, IdleRule, Job, JobArray, JobArrayDetail, JobCost, JobDetail, JobPreview, JobPriority, JobTimeline, Metrics, Resources, ModelType, NewToken, OpenInvitation, Page, PolicyChange, PolicyInfo, PolicyInForce, PolicyPreview, PreviewForecast, Priorities, Project, Session, ShareHistory, Shares, Usage, UsageGroup,
} from "./types";

/** Some lists are short enough to come whole, others come as a page: both read the same here. */
export function rows<T>(answer: T[] | Page<T>): T[] {
  return Array.isArray(answer) ? answer : answer.results;
}

async function list<T>(path: string, signal: AbortSignal): Promise<T[]> {
  return rows(await get<T[] | Page<T>>(path, {}, signal));
}

export function useSession() {
  return useQuery({ queryKey: ["session"], queryFn: ({ signal }) => get<Session>("session", {}, signal), staleTime: 60_000 });
}

export function useSignIn() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: { email: string; password: string }) => send<Session>("POST", "session", body),
    onSuccess: () => client.invalidateQueries({ queryKey: ["session"] }),
  });
}

export function useInvitation(secret: string) {
  return useQuery({
    queryKey: ["invitation", secret],
    queryFn: () => send<OpenInvitation>("POST", "invitations/look", { secret }),
    enabled: secret !== "",
    retry: false,
    staleTime: Infinity,
  });
}

/** Goes to the overview, as whoever is signed in then. */
export function useAcceptInvitation() {
  return useMutation({
    mutationFn: (body: { secret: string; name?: string; password?: string }) => send<{ project: string }>("POST", "invitations/accept", body),
    onSuccess: () => window.location.assign("/"),
  });
}

export function useSignOut() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => send<void>("DELETE", "session"),
    onSettled: () => {
      client.clear();
      window.location.assign("/");
    },
  });
}

/** The newest arrays, with how many of their jobs are in each state. */
export function useArrays(project: string, wanted: boolean) {
  return useQuery({ queryKey: ["arrays", project], enabled: wanted, queryFn: ({ signal }) => get<Page<JobArray>>("arrays", { limit: 200, ...(project ? { project } : {}) }, signal), refetchInterval: 5_000 });
}

export function useArray(number: string, wanted = true) {
  return useQuery({ queryKey: ["array", number], enabled: wanted, queryFn: ({ signal }) => get<JobArrayDetail>(`arrays/${number}`, {}, signal), refetchInterval: 5_000 });
}

function useArrayChange<V, R>(number: number, change: (value: V) => Promise<R>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: () => Promise.all([client.invalidateQueries({ queryKey: ["array", String(number)] }), client.invalidateQueries({ queryKey: ["jobs"] })]),
  });
}
export const useCancelArray = (number: number) => useArrayChange(number, (_: void) => send<{ cancelled: number }>("POST", `arrays/${number}/cancel`, {}));
export const useLimitArray = (number: number) => useArrayChange(number, (most: number | null) => send<JobArrayDetail>("PATCH", `arrays/${number}`, { max_running: most }));

export function useBrowsers() {
  return useQuery({ queryKey: ["sessions"], queryFn: ({ signal }) => list<BrowserSession>("sessions", signal) });
}

/** One session, or with null all but this one. */
export function useEndBrowser() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (id: number | null) => send<void>("DELETE", id === null ? "sessions" : `sessions/${id}`),
    onSuccess: () => client.invalidateQueries({ queryKey: ["sessions"] }),
  });
}

export function useJobSearch(text: string) {
  return useQuery({
    queryKey: ["jobs", "search", text],
    queryFn: ({ signal }) => get<Page<Job>>("jobs", { search: text }, signal),
    enabled: text.length > 0,
    placeholderData: keepPreviousData,
    staleTime: 10_000,
  });
}

export const jobWhole = (number: string) => ({
  queryKey: ["job", number],
  queryFn: ({ signal }: { signal: AbortSignal }) => get<JobDetail>(`jobs/${number}`, {}, signal),
  refetchInterval: 15_000,
});
/** No stream says when a program that was asked to end has ended. */
export const useJob = (number: string) =>
  useQuery({ ...jobWhole(number), refetchInterval: (query) => (query.state.data?.ending ? 2_000 : 15_000) });

export function jobPart<T>(part: string, number: string, ended: boolean, query: Record<string, string | number> = {}) {
  return {
    queryKey: ["job", number, part, query],
    queryFn: ({ signal }: { signal: AbortSignal }) => get<T>(`jobs/${number}/${part}`, query, signal),
    refetchInterval: ended ? (false as const) : 5_000,
    placeholderData: keepPreviousData,
  };
}

export const useJobTimeline = (number: string, ended: boolean) => useQuery(jobPart<JobTimeline>("timeline", number, ended));
/** Files are listed when a run has ended: until all are, it is asked again. */
export const useArtifacts = (number: string, ended: boolean) =>
  useQuery({
    ...jobPart<Artifacts>("artifacts", number, ended, { limit: 200 }),
    refetchInterval: (query) => (query.state.data?.collecting === false ? false : 5_000),
  });

export function useBuildLog(project: string, digest: string, open: boolean) {
  return useQuery({
    queryKey: ["build", project, digest],
    queryFn: ({ signal }) => get<BuildLog>(`projects/${project}/environments/${digest}/log`, {}, signal),
    enabled: open,
    refetchInterval: (query) => (query.state.data?.complete ? false : 3_000),
  });
}

export const useJobCost = (number: string, ended: boolean) => useQuery(jobPart<JobCost>("cost", number, ended));
export const useExplanation = (number: string, ended: boolean) => useQuery(jobPart<Explanation>("explanation", number, ended));
export const metricsPart = (number: string, ended: boolean) => jobPart<Metrics>("metrics", number, ended, { points: 600 });
export const useResources = (number: string, ended: boolean) => useQuery(jobPart<Resources>("resources", number, ended, { points: 400 }));
export const useMetrics = (number: string, ended: boolean) => useQuery(metricsPart(number, ended));

/** A change of one job: what is shown of it is fetched again. */
function useJobChange<T>(number: number, change: (input: T) => Promise<Job>) {
  const client = useQueryClient();
  return useMutation({ mutationFn: change, onSuccess: () => client.invalidateQueries({ queryKey: ["job", String(number)] }) });
}
export const useCancel = (number: number) => useJobChange(number, (_: void) => send<Job>("POST", `jobs/${number}/cancel`, {}));
export const useHold = (number: number) => useJobChange(number, (_: void) => send<Job>("POST", `jobs/${number}/hold`, {}));
export const useRelease = (number: number) => useJobChange(number, (_: void) => send<Job>("POST", `jobs/${number}/release`, {}));
export const useStopRetrying = (number: number) => useJobChange(number, (_: void) => send<Job>("POST", `jobs/${number}/stop-retrying`, {}));
export const useExtend = (number: number) => useJobChange(number, (_: void) => send<Job>("POST", `jobs/${number}/extend`, {}));
export const usePatchJob = (number: number) => useJobChange(number, (patch: Record<string, unknown>) => send<Job>("PATCH", `jobs/${number}`, patch));

/** Whether a job file names what to run: without it there is nothing to foresee. */
export const hasProgram = (file: Record<string, unknown>) => file.model_type !== undefined || file.command !== undefined;

/** What a job file would do if it were submitted; while it changes the answer before stays. */
export function usePreview(file: Record<string, unknown>) {
  return useQuery({
    queryKey: ["preview", file],
    queryFn: ({ signal }) => request<JobPreview>(url("jobs/preview"), { method: "POST", body: file, signal }),
    enabled: hasProgram(file),
    placeholderData: keepPreviousData,
    refetchInterval: 30_000,
  });
}

/** What the next round would do by another policy than the one of `since`; it changes with the queue. */
export function usePolicyPreview(name: string, parameters: Record<string, unknown>, since: string | null, enabled: boolean) {
  return useQuery({
    enabled,
    queryKey: ["policy-preview", name, parameters, since],
    queryFn: ({ signal }) => request<PolicyPreview>(url("policy/preview"), { method: "POST", body: { name, parameters }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: (query) => (query.state.error instanceof ApiError && query.state.error.errors.length > 0 ? false : 30_000), // what was refused stays so
  });
}

const FORECAST_POLL_MS = 400;
/** Then it is taken to come no more. */
const MOST_POLLS = 40;

/** When the job of a preview would start: worked out once somebody asks, so this asks until it is. */
export function useForecast(preview: string | null) {
  return useQuery({
    queryKey: ["forecast", preview],
    queryFn: async ({ signal }) => {
      for (let poll = 0; poll < MOST_POLLS; poll += 1) {
        const answer = await request<PreviewForecast>(url(`previews/${preview}`), { signal });
        if (answer.forecast) return answer.forecast;
        await new Promise((resolve) => { setTimeout(resolve, FORECAST_POLL_MS); });
        signal.throwIfAborted();
      }
      throw new Error("The expected start is not worked out.");
    },
    enabled: preview !== null,
    retry: false,
    staleTime: Infinity,
  });
}

export interface Submission {
  body: string | Record<string, unknown>;
  key: string;
  /** The job that `body` changes, as a merge patch. */
  again?: number | undefined;
}

export function useSubmit() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ body, key, again }: Submission) => {
      const type = typeof body === "string" ? "application/yaml" : "application/json";
      return send<Job>("POST", again === undefined ? "jobs" : `jobs/${again}/resubmit`, body, { "Idempotency-Key": key, "Content-Type": type });
    },
    onSuccess: () => client.invalidateQueries({ queryKey: ["jobs"] }),
  });
}

export function useTimeline(minutes: number, from: () => Date, enabled = true) {
  return useQuery({
    queryKey: ["timeline", minutes],
    queryFn: ({ signal }) => get<ClusterTimeline>("timeline", { from_at: from().toISOString() }, signal),
    refetchInterval: 5_000,
    placeholderData: keepPreviousData,
    enabled,
  });
}

export function useHistory(minutes: number) {
  return useQuery({
    queryKey: ["history", minutes],
    queryFn: ({ signal }) => get<History>("history", { minutes }, signal),
    refetchInterval: 15_000,
    placeholderData: keepPreviousData,
  });
}

const slow = { staleTime: 60_000 };
export const useModelTypes = () => useQuery({ queryKey: ["model-types"], queryFn: ({ signal }) => list<ModelType>("model-types", signal), ...slow });
export const useAcceleratorTypes = () =>
  useQuery({ queryKey: ["accelerator-types"], queryFn: ({ signal }) => list<AcceleratorType>("accelerator-types", signal), ...slow });
export const useProjects = (enabled = true) => useQuery({ queryKey: ["projects"], queryFn: ({ signal }) => allProjects(signal), staleTime: 10_000, enabled });

const MOST_PAGES = 10;

/** To choose from, by name: page after page, as many as one can still choose from. */
async function allProjects(signal: AbortSignal): Promise<Project[]> {
  const found: Project[] = [];
  let cursor: string | null = null;
  for (let page = 0; page < MOST_PAGES; page++) {
    const answer: Page<Project> = await get<Page<Project>>("projects", { limit: 200, cursor }, signal);
    found.push(...answer.results);
    cursor = answer.next ? new URL(answer.next).searchParams.get("cursor") : null;
    if (cursor === null) break;
  }
  return found.sort((a, b) => a.name.localeCompare(b.name));
}

export const usePolicies = () => useQuery({ queryKey: ["policies"], queryFn: ({ signal }) => list<PolicyInfo>("policies", signal), ...slow });
export const usePolicy = () => useQuery({ queryKey: ["policy"], queryFn: ({ signal }) => get<PolicyInForce>("policy", {}, signal), refetchInterval: 15_000 });
export const usePolicyHistory = () =>
  useQuery({ queryKey: ["policy", "history"], queryFn: ({ signal }) => list<PolicyChange>("policy/history", signal) });

function usePolicyChange<T>(change: (input: T) => Promise<PolicyInForce>) {
  const client = useQueryClient();
  return useMutation({ mutationFn: change, onSuccess: () => client.invalidateQueries({ queryKey: ["policy"] }) });
}
export const useApplyPolicy = () =>
  usePolicyChange((body: { name: string; parameters: Record<string, unknown> }) => send<PolicyInForce>("PUT", "policy", body));
export const useUndoPolicy = () => usePolicyChange((_: void) => send<PolicyInForce>("POST", "policy/undo", {}));

export const useIdleRule = () => useQuery({ queryKey: ["idle-rule"], queryFn: ({ signal }) => get<IdleRule>("idle-rule", {}, signal) });
export function useSetIdleRule() {
  const client = useQueryClient();
  return useMutation({ mutationFn: (rule: IdleRule) => send<IdleRule>("PUT", "idle-rule", rule), onSuccess: (rule) => client.setQueryData(["idle-rule"], rule) });
}

const EVERY_TREE = { limit: 200 };
export const useShares = () =>
  useQuery({ queryKey: ["shares"], queryFn: ({ signal }) => get<Shares>("shares", EVERY_TREE, signal), refetchInterval: 15_000 });
export const useShareHistory = (days: number) =>
  useQuery({ queryKey: ["shares", "history", days], queryFn: ({ signal }) => get<ShareHistory>("shares/history", { ...EVERY_TREE, days }, signal), placeholderData: keepPreviousData, refetchInterval: 60_000 });
export const usePriorities = () =>
  useQuery({ queryKey: ["priorities"], queryFn: ({ signal }) => get<Priorities>("priorities", EVERY_TREE, signal), refetchInterval: 5_000 });
export const useJobPriority = (number: string, queued: boolean) => useQuery({ ...jobPart<JobPriority>("priority", number, !queued), enabled: queued });

export interface UsageFilter {
  group_by: UsageGroup;
  from_day: string;
  to_day: string;
  project: string;
  user: string;
}
export const useUsage = (filter: UsageFilter) =>
  useQuery({
    queryKey: ["usage", filter],
    queryFn: ({ signal }) => get<Usage>("usage", { ...filter, limit: 200 }, signal),
    placeholderData: keepPreviousData,
    refetchInterval: 60_000,
  });

export const useTokens = () => useQuery({ queryKey: ["tokens"], queryFn: ({ signal }) => list<ApiToken>("tokens", signal) });

function useTokenChange<T, R>(change: (input: T) => Promise<R>) {
  const client = useQueryClient();
  return useMutation({ mutationFn: change, onSuccess: () => client.invalidateQueries({ queryKey: ["tokens"] }) });
}
export interface TokenWish {
  name: string;
  expires_in_days: number;
  scopes: ApiToken["scopes"];
  project: string | null;
}
export const useCreateToken = () => useTokenChange((body: TokenWish) => send<NewToken>("POST", "tokens", body));
export const useRotateToken = () => useTokenChange((id: number) => send<NewToken>("POST", `tokens/${id}/rotate`, {}));
export const useRevokeToken = () => useTokenChange((id: number) => send<void>("DELETE", `tokens/${id}`));
